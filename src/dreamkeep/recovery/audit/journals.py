"""Every journal of a keep: which need a closer look, and what is wrong with them.

A journal that looks as it did when it was indexed is not opened: its faults are those that the index knows. `deep` proves every
byte by checksums instead. Everything else is read (journal_reading.py). Losses that no frame reports are found in
journal_loss.py, and journal_faults.py says what the faults tell a repair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.host import Host, Look
from dreamkeep.index import part_fingerprints
from dreamkeep.index.store import FolderMark, JournalPlace, Store
from dreamkeep.index.witnessing import was_captured_again
from dreamkeep.journal import parts
from dreamkeep.journal.open_state import session_of
from dreamkeep.journal.places import KEEP, SESSIONS, folder_of
from dreamkeep.journal.reader import JournalDefect, Position, Tail
from dreamkeep.journal.witness import Witness
from dreamkeep.recovery.audit.journal_faults import defect_fault, journal_fault, tail_fault
from dreamkeep.recovery.audit.journal_loss import JournalLosses
from dreamkeep.recovery.audit.journal_reading import JournalReading, OwnJournal, confirm, read_journal, read_tail
from dreamkeep.recovery.audit.journal_state import JournalState
from dreamkeep.recovery.audit.proof import check_in_threads
from dreamkeep.recovery.faults import Fault
from dreamkeep.recovery.isolate import check_each
from dreamkeep.recovery.repair.movable import is_link
from dreamkeep.session.turns import STARTED, SUBMITTED, TurnView

if TYPE_CHECKING:
    from dreamkeep.capture.sources.source_cache import Cache

_PAUSES_S = (0.01, 0.05)
#: A file may look as it did and yet be unreadable: only its mode tells.
OWNER_READS = 0o400
_NO_LINK = "Put the file itself there, or remove the link."
_TEMP = re.compile(r".+\.[0-9a-f]{16}\.tmp")


class UnsettledSession(NamedTuple):
    """What was going on in a session when its journal was read: unsettled turns that have an owner, and its segments' state."""

    session: str
    name: str
    mark: FolderMark
    turns: list[TurnView]
    segments: dict[str, Any]


class JournalAudit:
    """Iterate `keep()`, then `sessions()`; afterwards the rest is true.

    `proven`: (journal, sums) that were found to hold. It outlives an audit that is repeated because the index moved.
    """

    def __init__(
        self, host: Host, root: str, store: Store | None, witness: Witness, *, deep: bool, proven: set[tuple[str, str]]
    ) -> None:
        self._host = host
        self._root = root
        self._store = store
        self._deep = deep
        self._proven = proven
        self.state = JournalState(host, root, store, deep=deep)
        self.own = OwnJournal(self.state)
        self._losses = JournalLosses(self.state, witness)
        self._indexed_defects: dict[str, list[JournalDefect]] = {}
        for session, defect in store.faults() if store else ():
            self._indexed_defects.setdefault(session, []).append(defect)
        #: Of sessions whose journals are not as they were when they were indexed; and which sessions those are.
        self.unsettled: list[UnsettledSession] = []
        self.reread: set[str] = set()
        #: (session, journal) of deleted sessions whose frames are still there.
        self.undeleted: list[tuple[str, str]] = []
        #: Paths of temporary files.
        self.leftovers: list[str] = []
        self._strays: list[Fault] = []

    # -- which journals

    def prove(self) -> Iterator[Fault]:
        """Check every indexed byte by its checksum. Reports nothing: what does not hold is looked at more closely later."""

        def holds(journal: tuple[str, int, str], buffer: memoryview) -> bool:
            name, last, sums = journal
            try:
                return part_fingerprints.parts_hold(self._host, f"{self._root}/{name}", sums, last, buffer)
            except OSError:
                return False  # the closer look reports why

        standings = ((name, last, sums) for name, last, sums, *_ in self.state.standings)
        todo = [one for one in standings if one[2] and (one[0], one[2]) not in self._proven]
        self._proven.update((name, sums) for name, _, sums in check_in_threads(todo, holds))
        yield from ()

    def keep(self) -> Iterator[Fault]:
        """The keep's own journal. It comes first, because it says who is deleted and what was accepted."""
        yield from check_each([KEEP], self._audit_journal, self._unreadable)

    def sessions(self) -> Iterator[Fault]:
        state = self.state
        names = state.present = {name for agent in self._list(SESSIONS) for name in self._list(agent)}
        quiet = self._find_quiet() & names
        state.checked["journals"] += len(quiet)
        yield from check_each(sorted(names - quiet), self._audit_journal, self._unreadable)
        yield from self._strays
        gone = (state.indexed | self._losses.seen.keys()) - names - {KEEP}
        hidden = {name for name in gone if name.startswith(state.unlisted)} if state.unlisted else set()
        yield from check_each(sorted(gone - hidden), self._find_vanished, self._unreadable)

    def captured(self, cache: Cache) -> Iterator[Fault]:
        """What capture remembers and no journal has. After `sessions()`."""
        yield from self._losses.captured(cache, self._unreadable)

    def _list(self, name: str) -> list[str]:
        try:
            return [f"{name}/{entry}" for entry in self._host.names(f"{self._root}/{name}")]
        except FileNotFoundError:
            return []  # nothing was recorded yet, or it is just being deleted
        except OSError as problem:
            self._strays.append(self._unreadable(name, problem.strerror or str(problem)))
            self.state.unlisted += (f"{name}/",)
            return []

    def _find_quiet(self) -> set[str]:
        """The common case, in one piece because there are thousands: one part, all of it indexed, no defect, and it looks as it
        did. Two stats prove that (in a deep audit also its checksum)."""
        loud = {folder_of(session) for session in (*self._indexed_defects, *self.state.dead) if session}
        seen = {name: {one.frame for one in sightings} for name, sightings in self._losses.seen.items()}
        deep, proven, part_name = self._deep, self._proven, parts.name
        files: dict[str, str] = {}
        looks: list[Look] = []
        for name, _, sums, plain, part, size, mtime_ns, inode, folder_mtime_ns, *frame in self.state.standings:
            if plain and name not in loud and seen.get(name, set()) <= {tuple(frame)} and (not deep or (name, sums) in proven):
                files[name] = path = f"{name}/{part_name(part)}"
                looks += (path, size, mtime_ns, inode), (name, 0, folder_mtime_ns, 0)
        try:
            changed = set(self._host.changed(self._root, looks))
        except OSError:
            return set()  # the closer look reports why
        return {name for name, path in files.items() if name not in changed and path not in changed} if changed else set(files)

    def _find_vanished(self, name: str) -> Iterator[Fault]:
        if part_fingerprints.read_folder_mark(self._host, f"{self._root}/{name}", None) is None:
            yield from self._losses.lost(name, self._losses.seen.get(name, ()))

    def _unreadable(self, name: str, why: str, where: str = "", step: str = "") -> Fault:
        self.state.unreadable.add(name)
        session = self._losses.session_of(name)
        return journal_fault("journal_unreadable", where or f"{self._root}/{name}", why, name, session, step=step, why=why)

    # -- one journal

    def _audit_journal(self, name: str) -> Iterator[Fault]:
        self.state.checked["journals"] += 1
        for pause_s in _PAUSES_S:
            try:
                yield from list(self._audit_now(name))
                return
            except FileNotFoundError:
                # Compressed, deleted or replaced meanwhile; what is no longer there can't be wrong.
                self._host.sleep(pause_s)
        yield from self._audit_now(name)

    def _audit_now(self, name: str) -> Iterator[Fault]:
        place = self.state.place(name)
        if place and place.session and place.session in self.state.dead:
            self.undeleted.append((place.session, name))
        elif link := self._find_link(name, place):
            yield self._unreadable(name, "it is a link, and its target is not part of the keep", link, _NO_LINK)
        elif place and not self._deep and self._is_as_indexed(name, place):
            if name == KEEP:
                self.own.mark = place.mark
            yield from self._report_indexed(name, place)
            if place.looks:
                yield from self._audit_files(name, place.session, part_fingerprints.names_in(place.looks))
        else:
            yield from self._look_closer(name, place)

    def _find_link(self, name: str, place: JournalPlace | None) -> str:
        """The first part that is a link, or "". Of several indexed parts only a deep audit looks at all."""
        folder = f"{self._root}/{name}"
        try:
            if self._deep or not place:
                found = [entry for entry in self._host.names(folder) if parts.number(entry) is not None]
            else:
                found = [] if place.looks else [parts.name(place.mark.part)]
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return next((f"{folder}/{entry}" for entry in sorted(found) if is_link(self._host, f"{folder}/{entry}")), "")

    def _is_as_indexed(self, name: str, place: JournalPlace) -> bool:
        folder = f"{self._root}/{name}"
        hot = self._host.stat(f"{folder}/{parts.name(place.mark.part)}")
        return part_fingerprints.is_unchanged(self._host, folder, place) and (hot is None or bool(hot.mode & OWNER_READS))

    def _report_indexed(self, name: str, place: JournalPlace) -> Iterator[Fault]:
        """What the index knows. Nothing is opened, unless something lies behind the last frame."""
        defects = self._indexed_defects.get(place.session, ())
        if defects:
            yield from self._report(name, place.session, defects)
        yield from self._losses.lost(name, self._losses.unmet(name, place), (), defects, place.position.seq)
        ends_there = (place.mark.part, place.mark.size) == (place.position.part, place.position.offset)
        if not ends_there and not part_fingerprints.is_last_part_cold(place):
            yield from self._report_tail(name, place.session, read_tail(self.state, name))

    def _look_closer(self, name: str, place: JournalPlace | None) -> Iterator[Fault]:
        folder = f"{self._root}/{name}"
        mark = part_fingerprints.read_folder_mark(self._host, folder, place.mark if place else None)
        if mark is None:
            yield from self._audit_empty(name, place)
            return
        session = place.session if place else self._session_of(name)
        if session is None:
            yield from self._audit_nameless(name, mark)
        elif session in self.state.dead:
            self.undeleted.append((session, name))
        else:
            yield from self._audit_content(name, session, place, mark)
            yield from self._audit_files(name, session, self._host.names(folder))

    def _audit_nameless(self, name: str, mark: FolderMark) -> Iterator[Fault]:
        """No frame says whose it is: the first may just be written, or all be deleted. So it counts only if that is still so
        while nobody writes; else the next audit reports what is there by then."""

        def look() -> tuple[str | None, FolderMark | None]:
            return self._session_of(name), part_fingerprints.read_folder_mark(self._host, f"{self._root}/{name}", None)

        if self.state.under_lock(name, look) == (None, mark):
            yield self._unreadable(name, "no frame names its session, or it belongs in another folder")

    def _session_of(self, name: str) -> str | None:
        """By its heads, or else any frame, or else the witness; None when that session's journal lies elsewhere (a copy)."""
        if name == KEEP:
            return ""
        return session_of(self._host, f"{self._root}/{name}", name) or self._losses.session_of(name) or None

    def _audit_empty(self, name: str, place: JournalPlace | None) -> Iterator[Fault]:
        """A crash leaves an empty folder before the first frame, and a part may have come since we looked. Anything else is not
        ours."""
        yield from self._find_vanished(name)
        if place or name in self._losses.seen:
            return
        at = self._host.stat(f"{self._root}/{name}")
        if at is None:
            if name == KEEP and self._host.stat(f"{self._root}/{SESSIONS}") is not None:
                yield self._unreadable(name, "it is missing, so deletions and accepted problems are unknown")
            return
        others = self._host.names(f"{self._root}/{name}") if at.is_folder else [""]
        if any(other != parts.LOCK and not is_temp(other) and parts.number(other) is None for other in others):
            yield self._unreadable(name, "this is not a journal")

    def _audit_content(self, name: str, session: str, place: JournalPlace | None, mark: FolderMark) -> Iterator[Fault]:
        if name == KEEP:
            self.own.mark = mark
        same = place is not None and self._has_indexed_bytes(name, place)
        start = place.position if place and same else None
        if start and place and mark == place.mark:
            yield from self._report_indexed(name, place)  # every byte was to be checked, and was: the checksums hold
            return
        if start and (start.part, start.offset) == (mark.part, mark.size + 1):
            start = None  # the last frame still lacks its line feed
        unmet = self._losses.unmet(name)
        last = (place.position.seq, place.position.crc) if place else (0, "")
        wanted = {last, *(one.frame for one in unmet)}
        read = read_journal(self.state, self.own, name, session, start, place, wanted)
        if start and read.scan.needs_full_scan():
            start, read = None, read_journal(self.state, self.own, name, session, None, place, wanted)
        ending = read.scan.reading
        drifted = place is not None and not same and last not in read.found
        if read.tail or drifted or unmet or any(defect.part == ending.last_part for defect in read.defects):
            read = confirm(self.state, name, read, wanted)
        yield from self._report(name, session, [*(self._indexed_defects.get(session, ()) if start else ()), *read.defects])
        yield from self._report_tail(name, session, read.tail)
        reached = self.state.reached[name][0]
        back = {one.frame for one in unmet if was_captured_again(one, reached, read.state)}
        lost = list(self._losses.lost(name, unmet, read.found | back, read.defects, ending.position.seq))
        yield from lost
        # The index knows something else than what lies there. What is gone and was never known to be on disk is no fault.
        if place and not same and not lost and last in read.found and not read.defects and not read.tail:
            yield from self._report_drift(name, place)
        self.reread.add(session)
        self._note_unsettled(session, name, mark, start, read)

    def _has_indexed_bytes(self, name: str, place: JournalPlace) -> bool:
        """By checksums: of all parts, or of those that look other than they did."""
        if self._deep or not place.sums:
            return (name, place.sums) in self._proven
        folder = f"{self._root}/{name}"
        last = place.position.part
        changed = {*part_fingerprints.changed_parts(self._host, folder, place), last}
        return part_fingerprints.parts_hold(self._host, folder, place.sums, last, which=changed)

    def _note_unsettled(self, session: str, name: str, mark: FolderMark, start: Position | None, read: JournalReading) -> None:
        segments = read.rows.state().get("segments") if read.rows else None
        if read.rows is None or segments is None:
            return
        before = {turn.id: turn for turn in self._store.turns(session)} if self._store and start else {}
        turns = {**before, **read.rows.changes.turns}.values()
        unsettled = [turn for turn in turns if turn.state in (SUBMITTED, STARTED) and turn.owner]
        self.unsettled.append(UnsettledSession(session, name, mark, unsettled, segments))

    # -- reporting

    def _report(self, name: str, session: str, defects: Iterable[JournalDefect]) -> Iterator[Fault]:
        for defect in defects:
            if defect.mended:
                self.state.checked["accepted" if defect.accepted else "mended"] += 1
                continue
            if defect.missing or defect.kind in ("cold", "chunks"):
                self.state.lossy.add(name)
            yield defect_fault(self._root, name, session, defect, witnessed=self._losses.witnessed(name))

    def _report_tail(self, name: str, session: str, tail: Tail | None) -> Iterator[Fault]:
        if tail:
            yield tail_fault(self._root, name, session, tail)

    def _report_drift(self, name: str, place: JournalPlace) -> Iterator[Fault]:
        if place.sums and place.mark.part:
            what = "the journal is intact, but differs from what was indexed"
            path = f"{self._root}/index.sqlite"
            yield journal_fault("index_drift", f"{self._root}/{name}", what, name, place.session, path=path)

    def _audit_files(self, name: str, session: str, names: Iterable[str]) -> Iterator[Fault]:
        """Temporary files, and parts that are there in both forms."""
        folder = f"{self._root}/{name}"
        for entry in names:
            if is_temp(entry):
                self.leftovers.append(f"{folder}/{entry}")
            part = parts.number(entry)
            if part is not None and entry.endswith(".zst") and self._host.stat(f"{folder}/{parts.name(part)}") is not None:
                yield from self._compare_forms(name, session, part)

    def _compare_forms(self, name: str, session: str, part: int) -> Iterator[Fault]:
        """Under the lock, which compression holds until the plain form is gone."""
        folder = f"{self._root}/{name}"
        plain = f"{folder}/{parts.name(part)}"

        def compare() -> bool | None:
            if self._host.stat(plain) is None or self._host.stat(f"{plain}.zst") is None:
                return None
            return parts.forms_agree(self._host, folder, part)

        same = self.state.under_lock(name, compare)
        if same is not None:
            differs = "the compressed form differs from the plain one; the plain one is read"
            what = "the part exists both plain and compressed" if same else differs
            yield journal_fault("journal_twice" if same else "journal_differs", f"{plain}.zst", what, name, session, part=part)


def is_temp(name: str) -> bool:
    """A file that was to be renamed when it was complete."""
    return _TEMP.fullmatch(name) is not None
