"""A session byte for byte out of its journal: which files it had, which version of each is the richest, and where they go.

As long as a file only grows it has one generation. If the newest is poorer than an earlier one, because the file shrank, was
blanked or replaced, the richest is chosen (by the bytes that are no blanks and NULs), unless the agent itself says that it was
meant: Hermes WebUI notes clears, undos and compactions in its document. Bytes are checked against what was journaled with them;
of a journal with holes nobody knows what else was in it, so nothing of it is called exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.agents.contract import BESIDE, DOCUMENT, LINES_ZST, ROWS, SHARED
from dreamkeep.agents.registry import find as find_agent
from dreamkeep.agents.shared.database import gone_in
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import SourceCursor
from dreamkeep.capture.sources.row_loss import with_its_words
from dreamkeep.errors import Failed, NotFound, Unsupported
from dreamkeep.host import Host
from dreamkeep.journal.reader import HOLES
from dreamkeep.journal.scan import Scan
from dreamkeep.recovery.audit.compare_source import richness
from dreamkeep.recovery.restore.places import Home, place
from dreamkeep.recovery.restore.put import Pieces
from dreamkeep.secrets.masking import is_masked, mask_line
from dreamkeep.session.summary import Summary

#: Files up to this size are held in memory together.
_SMALL = 1 << 20
#: How a frame `journal.mended` says that what was missing was captured again, or came back from a snapshot.
_AGAIN = ("recaptured", "imported")
_ZST = ".zst"
_TRANSCRIPTS = ("main", "subagent")
#: The table in which rows are what was said.
MESSAGES = "messages"


class ExactFile(NamedTuple):
    """One file to be there again. `generation` of `generations`; `newest` is how many bytes the newest one has. `masked`: secrets
    were masked when it was captured, so that these are not its bytes."""

    path: str
    role: str
    form: str
    pieces: Pieces
    size: int
    generation: int
    generations: int
    newest: int
    masked: bool


class Database(NamedTuple):
    """Rows to be in an SQLite file again: table → its rows, in the order of capture, each in its last version. `note`: what is to
    be told of them."""

    path: str
    rows: Mapping[str, tuple[Mapping[str, Any], ...]]
    masked: bool
    note: str


class ExactFiles(NamedTuple):
    """`lost`: how many events of its journal can't be read any more."""

    files: tuple[ExactFile, ...]
    databases: tuple[Database, ...]
    notes: tuple[str, ...]
    lost: int


def sources(host: Host, folder: str, agent: str) -> dict[str, dict[str, Any]]:
    """The session's sources of that agent, its transcript last: where it appears, all the rest is there."""
    found = source_bytes.sources(host, folder)
    own = {name: about for name, about in found.items() if about.get("agent", agent) == agent and about.get("path")}
    return dict(sorted(own.items(), key=lambda pair: (pair[1].get("role") in _TRANSCRIPTS, pair[1]["path"])))


def lost(host: Host, folder: str) -> int:
    """How many events are gone from a journal, and were not captured again. An end that can't be read may be one, too."""
    scan = Scan(host, folder, heads=True).run()
    holes = [
        hole for hole in scan.defects() if hole.kind in HOLES and not any(how in _AGAIN for how in scan.mended.get(hole[:4], ()))
    ]
    tail = scan.reading.tail
    unread = tail is not None and tail.size > 0
    unknown = sum(fault.kind == "cold" and not fault.missing for fault in holes)
    return unread + unknown + sum(span.last - span.first + 1 for fault in holes for span in fault.missing)


def find(host: Host, folder: str, summary: Summary, home: Home, generation: int | None) -> ExactFiles:
    files: dict[str, ExactFile] = {}
    databases: dict[str, Database] = {}
    notes: list[str] = []
    known = sources(host, folder, summary.agent)
    versions = _Versions(host, folder, summary, generation, known)
    for name, about in known.items():
        role = str(about.get("role") or "main")
        try:
            path = place(about["path"], role, summary, home)
        except Unsupported as problem:
            if role not in BESIDE:
                raise
            notes.append(f"Not restored: {problem}")
            continue
        if about.get("form") == ROWS:
            database = _database(host, folder, summary.agent, name, path)
            databases[path] = max(databases.get(path, database), database, key=_how_many)
        elif (file := versions.file(name, role, path)) is not None:
            if not home.named and path != about["path"]:
                notes.append(f"{about['path']} is not one of {summary.agent}'s folders, so it goes to {path}")
            if file.path in files:
                file, note = _richer(files[file.path], file)
                notes += note
            files[file.path] = file
    notes += [database.note for database in databases.values() if database.note]
    return ExactFiles(tuple(files.values()), tuple(databases.values()), tuple(notes), lost(host, folder))


def _how_many(database: Database) -> int:
    return sum(map(len, database.rows.values()))


def _richer(one: ExactFile, other: ExactFile) -> tuple[ExactFile, list[str]]:
    """Two files that were captured from different places, for the one that they go to."""
    small, large = sorted((one, other), key=lambda file: file.size)
    if _begins_with(large.pieces, small.pieces):
        return large, []
    told = f"two different copies were captured; the larger one ({large.size} bytes) is restored"
    return large, [f"{large.path}: {told}, not the other ({small.size} bytes)."]


def _begins_with(long: Pieces, short: Pieces) -> bool:
    """Whether one is the beginning of the other, however they are cut into pieces."""
    there, held = iter(long()), b""
    for piece in short():
        while len(held) < len(piece) and (more := next(there, None)) is not None:
            held += more
        if not held.startswith(piece):
            return False
        held = held[len(piece) :]
    return True


# -- which version


class _Versions:
    """The session's files. Small ones are read in one pass over the journal, and held; a large one that only grew is read each
    time it is wanted, in bounded memory."""

    def __init__(
        self, host: Host, folder: str, summary: Summary, wanted: int | None, known: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._host = host
        self._folder = folder
        self._session = summary.id
        self._wanted = wanted
        self._known = known
        agent = find_agent(summary.agent)
        self._marks = agent.shrink_marks if agent else ()
        names = [name for name, about in known.items() if about.get("form") != ROWS]
        found = source_bytes.words(host, folder, names)
        # A generation of no bytes is one of which nothing was read yet.
        self._words = {name: {n: word for n, word in found[name].items() if word.offset} for name in names}
        self._held: dict[str, tuple[int, list[bytes]]] = {}
        self._hold([name for name in names if len(self._words[name]) > 1 or self._size(name) <= _SMALL])

    def _size(self, name: str) -> int:
        return max((word.offset for word in self._words[name].values()), default=0)

    def _hold(self, names: list[str]) -> None:
        richest: dict[str, int] = {}
        newest: dict[str, list[bytes]] = {}
        for name, number, lines in source_bytes.all_generations(self._host, self._folder, names):
            if number not in self._words[name]:
                continue
            size = richness(lines)
            newest[name] = lines
            wanted = self._wanted if self._known[name].get("role") == "main" else None
            if number == wanted or (wanted is None and size >= richest.get(name, 0)):
                richest[name] = size
                self._held[name] = number, lines
        for name, (number, lines) in self._held.items():
            last = max(self._words[name])
            chosen = number in (last, self._wanted) or self._known[name].get("form") != DOCUMENT
            if not chosen and _meant(b"".join(lines), b"".join(newest[name]), self._marks):
                self._held[name] = self._since_meant(name, newest[name])

    def _since_meant(self, name: str, newest: list[bytes]) -> tuple[int, list[bytes]]:
        """The richest version from when less was meant on: what was lost after that was not."""
        best, size = (max(self._words[name]), newest), richness(newest)
        for number, lines in source_bytes.generations(self._host, self._folder, name):
            if (
                number in self._words[name]
                and richness(lines) > size
                and not _meant(b"".join(lines), b"".join(newest), self._marks)
            ):
                best, size = (number, lines), richness(lines)
        return best

    def file(self, name: str, role: str, path: str) -> ExactFile | None:
        words = self._words[name]
        if not words:
            return None  # nothing was ever read of it
        if role == "main" and self._wanted is not None and self._wanted not in words:
            there = ", ".join(map(str, sorted(words)))
            raise NotFound(f"it has no generation {self._wanted}", where=self._session, next=f"It has: {there}.")
        newest = max(words)
        form = str(self._known[name].get("form") or "")
        path = path.removesuffix(_ZST) if form == LINES_ZST else path  # the client reads both; its own packing is not captured
        chosen, held = self._held.get(name, (newest, None))
        whole: Pieces = partial(source_bytes.grown, self._host, self._folder, name, chosen)
        pieces: Pieces = whole if held is None else partial(iter, held)
        _check(pieces, words[chosen], path)
        masked = words[chosen].masked_crc is not None
        return ExactFile(path, role, form, pieces, words[chosen].offset, chosen, newest, words[newest].offset, masked)


def _meant(before: bytes, after: bytes, marks: Iterable[str]) -> bool:
    """Whether the newer document itself says that less was wanted."""
    old, new = _members(before), _members(after)
    return any(new.get(key) not in (None, old.get(key)) for key in marks)


def _members(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _check(pieces: Pieces, word: SourceCursor, path: str) -> None:
    size = crc = 0
    for piece in pieces():
        size += len(piece)
        crc = crc32(piece, crc)
    if (size, crc) != (word.offset, word.kept_crc):
        raise Failed(
            f"the journal no longer holds all of it ({size} of {word.offset} bytes)",
            where=path,
            next="`dreamkeep audit` shows the damage; --convert restores the readable messages.",
        )


# -- rows


Row = Mapping[str, Any]
Table = dict[object, Row]
_WORDS = ("role", "content", "tool_call_id", "tool_calls")


def _database(host: Host, folder: str, agent: str, name: str, path: str) -> Database:
    """Each row once, in its last version, at the place of its first; of a session that was written anew the richest version."""
    masked = False
    lines = []
    for about, line in source_bytes.captured(host, folder):
        if about["source"] == name:
            lines.append(line)
            masked = masked or "masked" in about
    versions = row_versions(agent, lines)
    many = [sum(map(len, one.values())) for one in versions]
    best = max(range(len(versions)), key=lambda n: (many[n], n))
    note = ""
    if best + 1 < len(versions):
        note = f"{path}: its rows as they were before it was rewritten ({many[best]}); the newest version has {many[-1]}."
    return Database(path, {table: tuple(rows.values()) for table, rows in versions[best].items()}, masked, note)


def row_versions(agent: str, lines: Iterable[bytes]) -> list[dict[str, Table]]:
    """The rows that were in a database together, the newest last. Rows that only are gone were lost, and stay, and so does what
    a blanked row said; but if their words were inserted again, the session was written anew: together with those it would be
    there twice. Pure."""
    found: list[dict[str, Table]] = []
    now: dict[str, Table] = {MESSAGES: {}}
    before = now
    gone: Table = {}
    new: set[str] = set()

    def settle() -> None:
        if new & {_words(row) for row in gone.values()}:
            found.append(before)
        else:
            now[MESSAGES] = {**gone, **now[MESSAGES]}

    for line in lines:
        keys = set(gone_in(line))
        if keys:
            settle()
            before, new = {table: dict(rows) for table, rows in now.items()}, set()
            gone = {key: row for key, row in now[MESSAGES].items() if f"{MESSAGES}/{key}" in keys}
            now[MESSAGES] = {key: row for key, row in now[MESSAGES].items() if key not in gone}
        held = json.loads(line)
        table, row = str(held["table"]), held["row"]
        if table == MESSAGES and row.get("id") not in now[MESSAGES]:
            new.add(_words(row))
        elif table == MESSAGES:
            row = with_its_words(agent, now[MESSAGES][row.get("id")], row)
        now.setdefault(table, {})[row.get("id")] = row
    settle()
    return [*found, now]


def _words(row: Row) -> str:
    return json.dumps([row.get(name) for name in _WORDS])


def union(there: bytes, ours: Iterable[bytes]) -> bytes | None:
    """A file of many sessions' lines with ours in it; None when they are. (`form` is then SHARED.)"""
    own = [line.rstrip(b"\n") for line in ours]
    known = set(there.split(b"\n"))
    if any(map(is_masked, own)):
        known.update([mask_line(line) for line in known])  # one of which only the secrets are masked here is there
    new = [line for line in own if line not in known]
    if not new:
        return None
    gap = b"\n" if there and not there.endswith(b"\n") else b""
    return there + gap + b"".join(line + b"\n" for line in new)


__all__ = ["SHARED", "Database", "ExactFile", "ExactFiles", "find", "lost", "sources", "union"]
