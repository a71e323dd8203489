"""A snapshot into a keep: all of it where there is none, what is lacking where there is one. Nothing here is ever replaced.

Each journal is staged below `state/` first, checked against its digest, then taken over whole (adopt) or merged event by event; a
crash leaves what was done, and importing again does the rest. A name that could leave the keep is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dreamkeep.errors import Deleted, DreamkeepError, Refused, from_os
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, make_folders, write_all
from dreamkeep.journal import parts
from dreamkeep.journal.adopt import adopt
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.pool import Journals
from dreamkeep.journal.reader import Reading, events
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.recovery.snapshot import FOLDERS, TOML, VIEW, Opened, Progress
from dreamkeep.recovery.snapshot_file import Bad, Damaged, Header
from dreamkeep.recovery.snapshot_merge import Ours, lacking, wanted

_PART = re.compile(r"(journal/keep|journal/sessions/[a-z0-9-]{1,32}/[^/]{1,120})/([0-9]{6,12})\.jsonl")
_BATCH = 500

#: (session, name of a source, folder of the staged journal): take over what that source has there and not here; or why not.
Regain = Callable[[str, str, str], str]


class Imported(NamedTuple):
    """`skipped`: what was left alone, and why; `bad`: what in the file could not be used."""

    added: int = 0
    merged: int = 0
    unchanged: int = 0
    events: int = 0
    files: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad: tuple[Bad, ...] = ()
    digest: str = ""


class Importing:
    """`journals` makes the keep when there is none: asked for only when the snapshot's own keep could not be taken over."""

    def __init__(self, host: Host, root: str, path: str, journals: Callable[[], Journals], regain: Regain) -> None:
        self._host = host
        self._root = root
        self._path = path
        self._journals = journals
        self._regain = regain
        self._staging = f"{root}/state/importing-{host.random(8).hex()}"
        self._skipped: list[tuple[str, str]] = []
        self._bad: list[Bad] = []
        self._counts = {"added": 0, "merged": 0, "unchanged": 0, "events": 0, "files": 0}

    def run(self, progress: Progress | None = None) -> Imported:
        opened = Opened(self._host, self._path)
        try:
            at = self._host.stat(self._path)
            for journal, found in _grouped(opened.entries()):
                self._take(journal, found)
                if progress:
                    progress(opened.passed, at.size if at else 0)
        except OSError as problem:
            raise from_os(problem, "importing", str(problem.filename or self._path)) from problem
        finally:
            opened.close()
            self._clear()
        return Imported(**self._counts, skipped=tuple(self._skipped), bad=(*opened.bad, *self._bad), digest=opened.digest)

    def _take(self, journal: str, found: Iterable[tuple[Header, Iterator[bytes]]]) -> None:
        """One journal's parts, or one other entry. What is wrong with it is its own trouble."""
        if journal:
            staged = self._stage(found)
            try:
                if staged:
                    self._keep_journal(staged) if journal == KEEP else self._session(journal, staged)
            except Deleted as problem:
                self._skipped.append((problem.where, "it was deleted here; `dreamkeep undelete` lifts that"))
            except DreamkeepError as problem:
                self._bad.append(Bad(journal, str(problem)))
            finally:
                self._clear()
            return
        for header, blocks in found:
            self._file(header, blocks)

    # -- staging

    def _stage(self, found: Iterable[tuple[Header, Iterator[bytes]]]) -> list[tuple[int, str]]:
        """Synced files of the parts that are whole."""
        staged = []
        for header, blocks in found:
            number = int(header.name.rpartition("/")[2].removesuffix(".jsonl"))
            path = f"{self._staging}/{parts.name(number)}"
            if self._write(path, header, blocks):
                staged.append((number, path))
        return sorted(staged)

    def _write(self, path: str, header: Header, blocks: Iterator[bytes]) -> bool:
        make_folders(self._host, self._staging)
        handle = self._host.create(path)
        try:
            for block in blocks:
                write_all(self._host, handle, block)
            self._host.sync(handle)
            return True
        except Damaged:
            self._host.remove(path)
            return False  # told by whoever reads the file
        finally:
            self._host.close(handle)

    def _clear(self) -> None:
        if self._host.stat(self._staging) is None:
            return
        for name in self._host.names(self._staging):
            self._host.remove(f"{self._staging}/{name}")
        self._host.remove_folder(self._staging)

    # -- journals

    def _session(self, journal: str, staged: Sequence[tuple[int, str]]) -> None:
        session = self._named(journal)
        if not session:
            self._bad.append(Bad(journal, "it does not say whose it is, or lies where another one belongs"))
            return
        tombs = Tombstones(self._host, self._root)

        def may_begin() -> None:
            if tombs.has(session):
                raise Deleted("this session was deleted", where=session, next="Lift that first: `dreamkeep undelete`.")

        self._journals()  # what stands above a journal must be there and durable
        if adopt(self._host, f"{self._root}/{journal}", staged, may_begin):
            self._counts["added"] += 1
            self._counts["events"] += sum(1 for _ in events(Reading(self._host, f"{self._root}/{journal}")))
            return
        may_begin()
        done = self._merge(session, f"{self._root}/{journal}")
        self._counts["merged" if done else "unchanged"] += 1

    def _named(self, journal: str) -> str:
        """The session that the frames name, if its journal belongs where it lies."""
        for frame in Reading(self._host, self._staging):
            body = frame["body"]
            said = body.get("journal") if frame["kind"] == Kind.PART_OPENED else body.get("session")
            if isinstance(said, str) and said and folder_of(said) == journal:
                return said
        return ""

    def _merge(self, session: str, folder: str) -> int:
        ours = Ours(self._host, folder)
        done = 0
        batch: list[Event] = []
        for found in lacking(ours, self._host, self._staging):
            event = wanted(found, ours)
            if event is None:
                continue
            batch.append(event)
            if len(batch) >= _BATCH:
                done += self._append(session, batch)
                batch = []
        done += self._append(session, batch) if batch else 0
        self._counts["events"] += done
        return done + self._regain_all(session, ours.sources)

    def _regain_all(self, session: str, sources: Iterable[str]) -> bool:
        """Sources of which they have frames that we lack. Whether something changed here."""
        writer = self._journals().writer(session)
        before = writer.all_carried()
        for source in sorted(sources):
            if why := self._regain(session, source, self._staging):
                self._skipped.append((session, why))
        return writer.all_carried() != before

    def _append(self, session: str, batch: Sequence[Event]) -> int:
        seqs = self._journals().append(session, batch)
        return sum(seq is not None for seq in seqs)

    def _keep_journal(self, staged: Sequence[tuple[int, str]]) -> None:
        """The keep's own: the first there is, else what is lacking. Nothing here is deleted for a tombstone of theirs."""
        folder = f"{self._root}/{KEEP}"
        if not parts.numbers(self._host, folder) and adopt(self._host, folder, staged, lambda: None):
            return
        self._journals()
        ours = Ours(self._host, folder)
        batch = [found.event for found in lacking(ours, self._host, self._staging) if found.event.kind not in _OWN]
        if batch:
            self._counts["events"] += self._append("", [event._replace(carry=None) for event in batch])
        self._bury(_dead(self._host, self._staging) - _dead(self._host, folder))

    def _bury(self, sessions: Iterable[str]) -> None:
        for session in sorted(sessions):
            if self._host.stat(f"{self._root}/{folder_of(session)}") is not None:
                self._skipped.append((session, "it was deleted there, and is kept here"))
            else:
                self._journals().say("", Kind.SESSION_DELETED, {"session": session})

    # -- other files

    def _file(self, header: Header, blocks: Iterator[bytes]) -> None:
        name = header.name
        if name.partition("/")[0] == VIEW:
            return
        if not _is_safe(name) or (name != TOML and name.partition("/")[0] not in FOLDERS):
            self._bad.append(Bad(name[:200], "a name that has no place in a keep"))
            return
        staged = f"{self._staging}/file"
        try:
            if self._write(staged, header, blocks):
                self._place(staged, name)
        finally:
            self._clear()

    def _place(self, staged: str, name: str) -> None:
        """Create-or-fail; what is there already and differs stays."""
        path = f"{self._root}/{name}"
        make_folders(self._host, path.rpartition("/")[0])
        try:
            self._host.link(staged, path)
            self._host.sync_folder(path.rpartition("/")[0])
            self._counts["files"] += 1
        except FileExistsError:
            if not _equal(self._host, staged, path):
                self._skipped.append((name, "another file of that name is here"))


#: Frames of a keep's own journal that speak of that keep alone.
_OWN = frozenset((Kind.KEEP_CREATED, Kind.SESSION_DELETED, Kind.SESSION_UNDELETED))


def _grouped(
    entries: Iterator[tuple[Header, Iterator[bytes]]],
) -> Iterator[tuple[str, Iterator[tuple[Header, Iterator[bytes]]]]]:
    """Entries of one journal together: (its folder, its parts); others alone, with ""."""
    from itertools import groupby

    for key, found in groupby(enumerate(entries), lambda one: _journal_of(one[1][0].name) or one[0]):
        yield key if isinstance(key, str) else "", (entry for _, entry in found)


def _journal_of(name: str) -> str:
    found = _PART.fullmatch(name)
    return found[1] if found and _is_safe(name) else ""


def _is_safe(name: str) -> bool:
    pieces = name.split("/")
    return name.isprintable() and len(name) < 1000 and all(piece not in ("", ".", "..") for piece in pieces)


def _dead(host: Host, folder: str) -> set[str]:
    dead: set[str] = set()
    for _, event in events(Reading(host, folder)):
        if event.kind == Kind.SESSION_DELETED:
            dead.add(str(event.body["session"]))
        elif event.kind == Kind.SESSION_UNDELETED:
            dead.discard(str(event.body["session"]))
    return {one for one in dead if _is_session(one)}


def _is_session(text: str) -> bool:
    from dreamkeep.journal.places import session_id

    agent, _, native = text.partition(":")
    try:
        return session_id(agent, native) == text
    except Refused:
        return False


def _equal(host: Host, one: str, other: str) -> bool:
    first, second = host.open_stream(one), host.open_stream(other)
    try:
        while block := first.read(1 << 20):
            if second.read(len(block)) != block:
                return False
        return not second.read(1)
    except IsADirectoryError:
        return False
    finally:
        first.close()
        second.close()
