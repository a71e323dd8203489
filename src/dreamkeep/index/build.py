"""Follow the journals: read only what is new, or everything from the start. Knows files and a store, nothing else.

Two stats tell whether a journal changed. One that is not simply longer than before (its last indexed frame is gone, or there is
something odd in the new part) is read again from the start: answers must not depend on how often the index followed.

Afterwards the witness learns what was read (witnessing.py), because a journal that was cut or replaced by an older copy looks
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dreamkeep.errors import Busy, NewerFormat
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, lock
from dreamkeep.index.part_fingerprints import (
    changed_parts,
    extend_sums,
    note_sources,
    parse_sources,
    parse_sums,
    part_holds,
    read_folder_mark,
    read_looks,
    sources_text,
)
from dreamkeep.index.store import FolderMark, JournalPlace, Store
from dreamkeep.journal import parts, witness
from dreamkeep.journal.open_state import session_of
from dreamkeep.journal.places import KEEP, SESSIONS, folder_of
from dreamkeep.journal.reader import Position
from dreamkeep.journal.scan import Scan
from dreamkeep.journal.tombs import is_strange, named
from dreamkeep.session import summary as life

if TYPE_CHECKING:
    from dreamkeep.index.rows import RowCollector

_BATCH_EVENTS = 2_000
_BATCH_BYTES = 8 << 20
_LOOKS = 2
#: Writers hold a journal's lock for as long as a write takes.
_WAIT_S = 1.0

#: Marks of a journal that was read only in part; no real folder looks like these. The second: something odd was found on the way.
#: What it was is known only at the end, so whoever goes on from there must read everything in the end.
_BEGUN = FolderMark(0, 0, 0, 0, 0)
_BEGUN_ODD = FolderMark(0, 1, 0, 0, 0)

_OF_MEMORY = ("dream.", "insight.", "note.", "task.", "page.", "project.")
_UNDOING = frozenset((Kind.DREAM_UNDONE, Kind.PROJECT_UNDONE))
_OF_DREAMS = frozenset((Kind.SESSION_COMPLETED, Kind.SESSION_DELETED))

Progress = Callable[[int, int], None]


class Built(NamedTuple):
    """What one round of following did. `strays`: journals that can't be indexed, and why."""

    journals: int
    events: int
    removed: int
    strays: tuple[str, ...] = ()


def follow(host: Host, root: str, store: Store, progress: Progress | None = None, *, writes: bool = True) -> Built:
    """`writes`: whether anything but the store may be written; only then the witness learns what was read."""
    follow_keep(host, root, store)
    known = store.places()  # only now: a tombstone makes the store forget places
    changed = list(_changed(host, root, known))
    buried = store.tombstones()
    total = sum(_new_bytes(host, root, name, known.get(name)) for name in changed)
    done = found = 0
    strays = []
    for name in changed:
        try:
            session = place.session if (place := known.get(name)) else session_of(host, f"{root}/{name}", name)
            if not session:
                strays.append(f"{name}: no frame names its session")
            if not session or session in buried:
                continue
            for events_read, bytes_read in _follow_session(host, root, store, name, session):
                found += events_read
                done += bytes_read
                if progress:
                    progress(min(done, total), total)
        except OSError as problem:
            strays.append(f"{name}: {problem.strerror or problem}")  # one unreadable journal must not hide the others
        except NewerFormat as problem:
            strays.append(f"{name}: {problem.what}")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
            strays.append(f"{name}: a frame doesn't match its kind ({type(problem).__name__}: {problem})")
    gone = _vanished(host, root, known)
    for name in gone:
        _forget(store, name)
    if writes:
        from dreamkeep.index.witnessing import update_witness

        update_witness(host, root, store, {*changed, KEEP})
    return Built(len(changed), found, len(gone), tuple(strays))


def current(host: Host, root: str, known: dict[str, JournalPlace]) -> bool:
    """Whether there is nothing to follow, and a witness exists."""
    keep = known.get(KEEP)
    if host.stat(f"{root}/{witness.FILE}") is None:
        return False
    if (keep.mark if keep else None) != read_folder_mark(host, f"{root}/{KEEP}", keep.mark if keep else None):
        return False
    return not _vanished(host, root, known) and next(_changed(host, root, known), None) is None


def journals(host: Host, root: str) -> Iterator[str]:
    """The folders of all sessions, relative to the keep."""
    top = f"{root}/{SESSIONS}"
    for agent in sorted(_names(host, top)):
        for name in sorted(_names(host, f"{top}/{agent}")):
            yield f"{SESSIONS}/{agent}/{name}"


def _names(host: Host, path: str) -> list[str]:
    try:
        return host.names(path)
    except (FileNotFoundError, NotADirectoryError):
        return []  # removed meanwhile, or a file that some program left there


def _changed(host: Host, root: str, known: dict[str, JournalPlace]) -> Iterator[str]:
    for name in journals(host, root):
        place = known.get(name)
        before = place.mark if place else None
        now = read_folder_mark(host, f"{root}/{name}", before)
        if now is not None and now != before:
            yield name


def _vanished(host: Host, root: str, known: dict[str, JournalPlace]) -> list[str]:
    return [
        name for name, place in known.items() if name != KEEP and read_folder_mark(host, f"{root}/{name}", place.mark) is None
    ]


def _new_bytes(host: Host, root: str, name: str, place: JournalPlace | None) -> int:
    folder = f"{root}/{name}"
    at = place.position if place else Position()
    size = -at.offset
    for part in parts.numbers(host, folder):
        if part >= at.part:
            file = host.stat(f"{folder}/{parts.name(part)}") or host.stat(f"{folder}/{parts.name(part)}.zst")
            size += file.size if file else 0
    return max(size, 0)


def follow_keep(host: Host, root: str, store: Store) -> None:
    """Tombstones, undone deletions, and what was learned. Read before the sessions that they are about. Questions about memory
    need no more than this."""
    while not _followed_keep(host, root, store):
        pass  # another process follows it, too: continue from its place


def _followed_keep(host: Host, root: str, store: Store) -> bool:
    folder = f"{root}/{KEEP}"
    place = store.place(KEEP)
    mark = read_folder_mark(host, folder, place.mark if place else None)
    if mark is None or (place and place.mark == mark):
        return True
    looked = read_looks(host, folder)
    start = place.position if place and _only_longer(host, folder, place) else None
    scan, found = _scan_keep(host, folder, start)
    if start and (scan.needs_full_scan() or any(event.kind in _UNDOING for event in found)):
        # An undone run leaves no trace: fold the journal without it.
        start = None
        scan, found = _scan_keep(host, folder, start)
    end = scan.reading.position
    if not _stays(host, folder, end):
        return False
    sums = extend_sums(host, folder, place.sums if place and start else "", end)
    with store.writing():
        if store.place(KEEP) != place:
            return False
        if start is None:
            store.forget(KEEP)
            for session in store.tombstones():
                store.lift(session)
        _remember(store, found, anew=start is None)
        for event in found:
            if not (session := named(event)):
                continue
            if event.kind == Kind.SESSION_DELETED:
                store.mark_deleted(session, event.at)
                # From the tombstone on it must not be seen, even if the process that deletes it died before removing it.
                store.forget(folder_of(session))
            else:
                store.lift(session)
        store.accept((str(e.body.get("fault")) for e in found if e.kind == Kind.FAULT_ACCEPTED), anew=start is None)
        store.put_place(JournalPlace(KEEP, "", end, mark, looked, sums), None if start else scan.defects())
    return True


def _remember(store: Store, found: list[Event], *, anew: bool) -> None:
    """Insights, notes, tasks and runs: the fold continues from its rows, or begins again."""
    if not anew and not any(event.kind.startswith(_OF_MEMORY) or event.kind in _OF_DREAMS for event in found):
        return
    from dreamkeep.memory.memory import Memory, fold

    if anew:
        memory = fold(found)
    else:
        memory = Memory.on_demand(store.memory_row, store.memory_table)
        for event in found:
            memory.apply(event)
    store.remember(memory.changed(), anew=anew)


def _scan_keep(host: Host, folder: str, start: Position | None) -> tuple[Scan, list[Event]]:
    scan = Scan(host, folder, start)
    found = list(scan.events())
    scan.strange += (seq for seq, event in found if is_strange(event))
    return scan, [event for _, event in found]


def _follow_session(host: Host, root: str, store: Store, name: str, session: str) -> Iterator[tuple[int, int]]:
    folder = f"{root}/{name}"
    place = store.place(name)
    if place and (place.mark == _BEGUN_ODD or not _only_longer(host, folder, place)):
        _forget(store, name)
        place = None
    for _ in range(_LOOKS):
        stretch = _Stretch(host, folder, store, name, session, place)
        yield from stretch.read()
        while stretch.overtaken:
            # Another process follows this journal, too: continue from its place, however often that happens.
            stretch = _Stretch(host, folder, store, name, session, store.place(name))
            yield from stretch.read()
        if not stretch.odd:
            break
        # Something odd: only a scan from the start sees all of it. And a tail that is settled while we read looks like damage
        # once.
        place = None
        _forget(store, name)
    else:
        yield from _Stretch(host, folder, store, name, session, None).read()


def _forget(store: Store, name: str) -> None:
    """It is gone, or will be read again."""
    with store.writing():
        store.forget(name)


def _only_longer(host: Host, folder: str, place: JournalPlace) -> bool:
    """Whether what was read is unchanged, as far as names, sizes and times can tell: then only what is new must be read."""
    now = read_folder_mark(host, folder, None)
    before = place.mark
    if now is None:
        return False
    if now.part == before.part and now.size <= before.size and now.part_mtime_ns != before.part_mtime_ns:
        return False  # parts only grow: another program changed it
    if now.part == before.part and now.part_inode != before.part_inode:
        return False  # another file with that name: from a backup, or an editor
    if now.folder_mtime_ns != before.folder_mtime_ns and len(parts.numbers(host, folder)) != now.part:
        return False
    sums = parse_sums(place.sums)
    for part in changed_parts(host, folder, place):
        if part not in sums or not part_holds(host, folder, part, sums[part], whole=True):
            return False  # a finished part has other bytes (compression keeps them the same)
    return _still_there(host, folder, place.position)


def _still_there(host: Host, folder: str, position: Position) -> bool:
    """Whether the last frame we read is at its place: after a power cut an unsynced one may be gone, and another one there."""
    foot = f'{position.crc}"}}'.encode()
    try:
        with parts.stream(host, folder, position.part, max(0, position.offset - 1 - len(foot))) as source:
            return source.read(len(foot)) == foot
    except FileNotFoundError:
        return False


def _stays(host: Host, folder: str, end: Position) -> bool:
    """Whether what was read up to `end` is still there once the current writer is done. On a full or failing disk a writer takes
    back bytes that it promised to nobody, and the index must not go on missing them."""
    path = f"{folder}/{parts.name(end.part)}"
    try:
        handle = host.open_read(f"{folder}/{parts.LOCK}")
    except OSError:
        return True  # nobody writes, or we can't tell
    try:
        lock(host, handle, where=folder, wait_s=_WAIT_S, shared=True)
        file = host.stat(path)
        # The last frame may lack its line feed, which was counted.
        return end.offset <= file.size + 1 if file else not end.offset or host.stat(f"{path}.zst") is not None
    except Busy:
        return True
    finally:
        host.close(handle)


class _Stretch:
    """One session's journal from its indexed place on, in bounded batches. Each is stored together with the place it reaches."""

    def __init__(self, host: Host, folder: str, store: Store, name: str, session: str, place: JournalPlace | None) -> None:
        self._store = store
        self._name = name
        self._session = session
        self._place = place
        self._from_zero = place is None
        self._host = host
        self._folder = folder
        self._mark = read_folder_mark(host, folder, place.mark if place else None)
        self._looks = read_looks(host, folder) if self._mark else ""
        self._sums = place.sums if place else ""
        self._sources = parse_sources(place.sources) if place else {}
        self._scan = Scan(host, folder, place.position if place else None, fold=partial(note_sources, self._sources))
        self.odd = place is not None and place.mark == _BEGUN_ODD
        self.overtaken = False

    def read(self) -> Iterator[tuple[int, int]]:
        """(events, bytes) of each batch."""
        import json

        from dreamkeep.index.rows import RowCollector, Stored  # it imports the readers of all agents

        summary = life.empty(self._session) if self._from_zero else self._store.session(self._session)
        if summary is None or self._mark is None:
            return  # removed meanwhile
        state = {} if self._from_zero else json.loads(self._store.state(self._session))
        known = Stored(self._store, self._session, self._from_zero)
        stream = self._scan.events()
        travelled = 0
        more = True
        while more:
            with self._store.writing():
                if self._store.place(self._name) != self._place:
                    self.overtaken = True
                    return
                rows = RowCollector(summary, state, known)
                count, more = self._take(stream, rows, travelled)
                if not more and not _stays(self._host, self._folder, self._scan.reading.position):
                    self.odd = True
                    return
                step = self._scan.reading.bytes_read - travelled
                state = rows.state()
                summary = rows.seen()._replace(bytes=rows.summary.bytes + step)
                self._put(rows, summary, more)
            known.note(rows.changes)
            travelled += step
            yield count, step

    def _take(self, stream: Iterator[tuple[int, Event]], rows: RowCollector, travelled: int) -> tuple[int, bool]:
        for count in range(_BATCH_EVENTS):
            found = next(stream, None)
            if found is None:
                return count, False
            rows.add(*found)
            if self._scan.reading.bytes_read - travelled > _BATCH_BYTES:
                return count + 1, True
        return _BATCH_EVENTS, True

    def _put(self, rows: RowCollector, summary: life.Summary, more: bool) -> None:
        self._scan.strange += rows.strange
        self.odd |= self._scan.needs_full_scan()
        # Before the end is reached, the mark must not say that all was read.
        end, sources = self._scan.reading.position, sources_text(self._sources)
        if more or self._mark is None:
            self._place = JournalPlace(self._name, self._session, end, _BEGUN_ODD if self.odd else _BEGUN, sources=sources)
        else:
            sums = extend_sums(self._host, self._folder, self._sums, end)
            self._place = JournalPlace(self._name, self._session, end, self._mark, self._looks, sums, sources)
        defects = self._scan.defects() if self._from_zero and not more else None
        self._store.put(rows.batch(self._place, summary, defects))
