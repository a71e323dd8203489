"""Finds what to restore byte for byte: which files a session had, which version of each is the richest, and where they go.

A file that only grows has one generation. If the newest generation is poorer than an earlier one, because the file shrank, was
blanked or replaced, the richest is chosen (by the bytes that are not blanks or NULs), unless the agent's own document says that
this was intended: Hermes WebUI notes clears, undos and compactions there. Bytes are checked against the checksum that was
journaled with them. Nothing from a journal with holes is called exact, because nobody knows what else was in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.agents.contract import BESIDE, DOCUMENT, LINES_ZST, ROWS
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
from dreamkeep.recovery.restore.places import Home, target_path
from dreamkeep.recovery.restore.put import Pieces
from dreamkeep.secrets.masking import is_masked, mask_line
from dreamkeep.session.records import loads
from dreamkeep.session.summary import Summary

#: Files up to this size are held in memory together.
_SMALL = 1 << 20
#: What a frame `journal.mended` says where the missing events are back.
_BROUGHT_BACK = ("recaptured", "imported")
_ZST = ".zst"
_TRANSCRIPTS = ("main", "subagent")
#: The table whose rows are messages.
MESSAGES = "messages"


class ExactFile(NamedTuple):
    """One file to restore. `newest`: the size of its newest generation. `masked`: secrets were masked when it was captured, so
    these are not its own bytes."""

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
    """Rows to restore into an SQLite file: by table, in the order of capture, each in its last version. `note`: for the user."""

    path: str
    rows: Mapping[str, tuple[Mapping[str, Any], ...]]
    masked: bool
    note: str


class ExactFiles(NamedTuple):
    """`lost`: how many events of the journal can no longer be read."""

    files: tuple[ExactFile, ...]
    databases: tuple[Database, ...]
    notes: tuple[str, ...]
    lost: int


def count_lost_events(host: Host, folder: str) -> int:
    """How many events are missing from a journal and were not brought back. An end that can't be read counts as one, too."""
    scan = Scan(host, folder, heads=True).run()
    holes = [
        hole
        for hole in scan.defects()
        if hole.kind in HOLES and not any(how in _BROUGHT_BACK for how in scan.mended.get(hole[:4], ()))
    ]
    tail = scan.reading.tail
    unread = tail is not None and tail.size > 0
    unknown = sum(fault.kind == "cold" and not fault.missing for fault in holes)
    return unread + unknown + sum(span.last - span.first + 1 for fault in holes for span in fault.missing)


def find_files(host: Host, folder: str, summary: Summary, home: Home, generation: int | None) -> ExactFiles:
    files: dict[str, ExactFile] = {}
    databases: dict[str, Database] = {}
    notes: list[str] = []
    sources = _list_sources(host, folder, summary.agent)
    versions = _Versions(host, folder, summary, generation, sources)
    for name, about in sources.items():
        role = str(about.get("role") or "main")
        try:
            path = target_path(about["path"], role, summary, home)
        except Unsupported as problem:
            if role not in BESIDE:
                raise
            notes.append(f"Not restored: {problem}")
            continue
        if about.get("form") == ROWS:
            database = _database(host, folder, summary.agent, name, path)
            databases[path] = max(databases.get(path, database), database, key=lambda known: sum(map(len, known.rows.values())))
        elif (file := versions.file(name, role, path)) is not None:
            if not home.named and path != about["path"]:
                notes.append(f"{about['path']} is not one of {summary.agent}'s folders, so it goes to {path}")
            files[file.path] = _select_larger(files[file.path], file, notes) if file.path in files else file
    notes += [database.note for database in databases.values() if database.note]
    return ExactFiles(tuple(files.values()), tuple(databases.values()), tuple(notes), count_lost_events(host, folder))


def _select_larger(earlier: ExactFile, later: ExactFile, notes: list[str]) -> ExactFile:
    """The larger of two files that were captured in different places and go to the same one."""
    small, large = sorted((earlier, later), key=lambda copy: copy.size)
    if not _begins_with(large.pieces, small.pieces):
        what = f"two different copies were captured; the larger one ({large.size} bytes) is restored"
        notes.append(f"{large.path}: {what}, not the other ({small.size} bytes).")
    return large


def _list_sources(host: Host, folder: str, agent: str) -> dict[str, dict[str, Any]]:
    """The session's sources of that agent, its transcript last, so that everything else is there when it appears."""
    found = source_bytes.sources(host, folder)
    own = {name: about for name, about in found.items() if about.get("agent", agent) == agent and about.get("path")}
    return dict(sorted(own.items(), key=lambda pair: (pair[1].get("role") in _TRANSCRIPTS, pair[1]["path"])))


def _begins_with(long: Pieces, short: Pieces) -> bool:
    """Whether `short` is the beginning of `long`, however the two are cut into pieces."""
    pieces, buffer = iter(long()), b""
    for piece in short():
        while len(buffer) < len(piece) and (more := next(pieces, None)) is not None:
            buffer += more
        if not buffer.startswith(piece):
            return False
        buffer = buffer[len(piece) :]
    return True


# -- which version


class _Versions:
    """The versions of the session's files. Small files are read in one pass over the journal and kept in memory; a large one that
    only grew is read whenever it is needed, in bounded memory."""

    def __init__(
        self, host: Host, folder: str, summary: Summary, wanted: int | None, sources: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._host = host
        self._folder = folder
        self._session = summary.id
        self._wanted = wanted
        self._sources = sources
        agent = find_agent(summary.agent)
        self._marks = agent.shrink_marks if agent else ()
        names = [name for name, about in sources.items() if about.get("form") != ROWS]
        cursors = source_bytes.words(host, folder, names)
        # Nothing was read yet of a generation without bytes.
        self._cursors = {name: {n: cursor for n, cursor in cursors[name].items() if cursor.offset} for name in names}
        self._loaded: dict[str, tuple[int, list[bytes]]] = {}
        self._load([name for name in names if len(self._cursors[name]) > 1 or self._size(name) <= _SMALL])

    def _size(self, name: str) -> int:
        return max((cursor.offset for cursor in self._cursors[name].values()), default=0)

    def _load(self, names: list[str]) -> None:
        richest: dict[str, int] = {}
        newest: dict[str, list[bytes]] = {}
        for name, number, lines in source_bytes.all_generations(self._host, self._folder, names):
            if number not in self._cursors[name]:
                continue
            size = richness(lines)
            newest[name] = lines
            wanted = self._wanted if self._sources[name].get("role") == "main" else None
            if number == wanted or (wanted is None and size >= richest.get(name, 0)):
                richest[name] = size
                self._loaded[name] = number, lines
        for name, (number, lines) in self._loaded.items():
            last = max(self._cursors[name])
            is_final = number in (last, self._wanted) or self._sources[name].get("form") != DOCUMENT
            if not is_final and _is_intended(lines, newest[name], self._marks):
                self._loaded[name] = self._since_intended(name, newest[name])

    def _since_intended(self, name: str, newest: list[bytes]) -> tuple[int, list[bytes]]:
        """The richest version since the user intended to have less. What was lost after that was not intended."""
        best, size = (max(self._cursors[name]), newest), richness(newest)
        for number, lines in source_bytes.generations(self._host, self._folder, name):
            if number in self._cursors[name] and richness(lines) > size and not _is_intended(lines, newest, self._marks):
                best, size = (number, lines), richness(lines)
        return best

    def file(self, name: str, role: str, path: str) -> ExactFile | None:
        cursors = self._cursors[name]
        if not cursors:
            return None  # nothing was ever read of it
        if role == "main" and self._wanted is not None and self._wanted not in cursors:
            numbers = ", ".join(map(str, sorted(cursors)))
            raise NotFound(f"it has no generation {self._wanted}", where=self._session, next=f"It has: {numbers}.")
        newest = max(cursors)
        form = str(self._sources[name].get("form") or "")
        path = path.removesuffix(_ZST) if form == LINES_ZST else path  # the client reads both; its own packing is not captured
        chosen, lines = self._loaded.get(name, (newest, None))
        read: Pieces = partial(source_bytes.grown, self._host, self._folder, name, chosen)
        pieces: Pieces = read if lines is None else partial(iter, lines)
        cursor = cursors[chosen]
        _check_bytes(pieces, cursor, path)
        is_masked = cursor.masked_crc is not None
        return ExactFile(path, role, form, pieces, cursor.offset, chosen, newest, cursors[newest].offset, is_masked)


def _is_intended(before: list[bytes], after: list[bytes], marks: Iterable[str]) -> bool:
    """Whether the newer document itself says that the user intended to have less."""
    old, new = loads(b"".join(before)) or {}, loads(b"".join(after)) or {}
    return any(new.get(key) not in (None, old.get(key)) for key in marks)


def _check_bytes(pieces: Pieces, cursor: SourceCursor, path: str) -> None:
    size = crc = 0
    for piece in pieces():
        size += len(piece)
        crc = crc32(piece, crc)
    if (size, crc) != (cursor.offset, cursor.kept_crc):
        raise Failed(
            f"the journal no longer holds all of it ({size} of {cursor.offset} bytes)",
            where=path,
            next="`dreamkeep audit` shows the damage; --convert restores the readable messages.",
        )


# -- rows


Row = Mapping[str, Any]
Table = dict[object, Row]
_WORDS = ("role", "content", "tool_call_id", "tool_calls")


def _database(host: Host, folder: str, agent: str, name: str, path: str) -> Database:
    """Each row once, in its last version, where its first was. Of a session that was written anew, its richest version."""
    masked = False
    lines = []
    for about, line in source_bytes.captured(host, folder):
        if about["source"] == name:
            lines.append(line)
            masked = masked or "masked" in about
    versions = row_versions(agent, lines)
    counts = [sum(map(len, version.values())) for version in versions]
    best = max(range(len(versions)), key=lambda n: (counts[n], n))
    note = ""
    if best + 1 < len(versions):
        note = f"{path}: its rows as they were before it was rewritten ({counts[best]}); the newest version has {counts[-1]}."
    return Database(path, {table: tuple(rows.values()) for table, rows in versions[best].items()}, masked, note)


def row_versions(agent: str, lines: Iterable[bytes]) -> list[dict[str, Table]]:
    """The rows that were in a database together, the newest version last. Pure."""
    history = _RowHistory(agent)
    for line in lines:
        history.add_line(line)
    history.settle_removed()
    return [*history.versions, history.now]


class _RowHistory:
    """Replays captured rows. A message row that is merely gone was lost, so it stays, and a row that was blanked keeps its words.
    But if the words of a removed row were inserted again, the session was written anew. With the old rows it would be there
    twice, so a new version begins."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.versions: list[dict[str, Table]] = []
        self.now: dict[str, Table] = {MESSAGES: {}}
        #: The rows before the last removal, the messages that it removed, and the words that were inserted since.
        self._before = self.now
        self._removed: Table = {}
        self._inserted: set[str] = set()

    def add_line(self, line: bytes) -> None:
        if keys := set(gone_in(line)):
            self.settle_removed()
            self._remove(keys)
        record = json.loads(line)
        table, row = str(record["table"]), record["row"]
        if table == MESSAGES:
            known = self.now[MESSAGES].get(row.get("id"))
            if known is None:
                self._inserted.add(_words(row))
            else:
                row = with_its_words(self._agent, known, row)
        self.now.setdefault(table, {})[row.get("id")] = row

    def _remove(self, keys: set[str]) -> None:
        self._before = {table: dict(rows) for table, rows in self.now.items()}
        self._inserted = set()
        messages = self.now[MESSAGES]
        self._removed = {key: row for key, row in messages.items() if f"{MESSAGES}/{key}" in keys}
        self.now[MESSAGES] = {key: row for key, row in messages.items() if key not in self._removed}

    def settle_removed(self) -> None:
        """Keep the rows before the removal as a version of their own, or put the removed rows back."""
        if self._inserted & {_words(row) for row in self._removed.values()}:
            self.versions.append(self._before)
        else:
            self.now[MESSAGES] = {**self._removed, **self.now[MESSAGES]}


def _words(row: Row) -> str:
    return json.dumps([row.get(name) for name in _WORDS])


def add_lines(present: bytes, lines: Iterable[bytes]) -> bytes | None:
    """A file of many sessions (`form` SHARED) with these lines added; None when it has them all."""
    own = [line.rstrip(b"\n") for line in lines]
    known = set(present.split(b"\n"))
    if any(map(is_masked, own)):
        known.update([mask_line(line) for line in known])  # a line that differs only in masked secrets is in it
    new = [line for line in own if line not in known]
    if not new:
        return None
    gap = b"\n" if present and not present.endswith(b"\n") else b""
    return present + gap + b"".join(line + b"\n" for line in new)
