"""The journals: what is wrong with their bytes. Reads, and opens only what does not look as it did when it was indexed.

What its faults tell a repair: audit_told.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dreamkeep.errors import Busy
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, Look, lock
from dreamkeep.index import part_fingerprints
from dreamkeep.index.rows import RowCollector, Stored
from dreamkeep.index.store import FolderMark, JournalPlace, Store
from dreamkeep.index.witnessing import is_back, sighting
from dreamkeep.journal import parts
from dreamkeep.journal.open_state import read_head, session_of
from dreamkeep.journal.places import KEEP, SESSIONS, folder_of
from dreamkeep.journal.reader import JournalDefect as Seen
from dreamkeep.journal.reader import Position, Reading, Tail, tells_of
from dreamkeep.journal.scan import Scan, read_events
from dreamkeep.journal.tombs import Tombstones, is_strange, named
from dreamkeep.journal.witness import FILE as WITNESS
from dreamkeep.journal.witness import Sighting, Witness, is_there, load
from dreamkeep.recovery.audit.compare_source import lacks
from dreamkeep.recovery.audit.journal_faults import captured_lost, end_lost, made, make_fault, tail_told
from dreamkeep.recovery.faults import Fault
from dreamkeep.recovery.isolate import check_each
from dreamkeep.recovery.repair.movable import is_link
from dreamkeep.session import summary as life
from dreamkeep.session.changes import NoEarlierResults
from dreamkeep.session.turns import STARTED, SUBMITTED, TurnView

if TYPE_CHECKING:
    from dreamkeep.capture.sources.content import SourceCursor
    from dreamkeep.capture.sources.source_cache import Cache
    from dreamkeep.memory.memory import Memory
    from dreamkeep.recovery.repair.ledger import TakenFrames

T = TypeVar("T")

#: More than this of one journal is not folded in memory: its open turns are seen when it is indexed.
_FOLDED_BYTES = 64 << 20
#: Writers hold a journal's lock for as long as a write takes.
_WAIT_S = 2.0
_PAUSES_S = (0.01, 0.05)
#: A file may look as it did, and nobody be able to read it any more: only its mode tells.
OWNER_READS = 0o400
#: Files are summed so many at a time, in groups of so many.
AT_A_TIME = 3
AT_ONCE = 32
_NO_LINK = "Put the file itself there, or remove the link."
_TEMP = re.compile(r".+\.[0-9a-f]{16}\.tmp")


class Open(NamedTuple):
    """What was going on in a session when its journal was read: unsettled turns that have an owner, and its segments' state."""

    session: str
    name: str
    mark: FolderMark
    turns: list[TurnView]
    segments: dict[str, Any]


class JournalReading(NamedTuple):
    """One reading of a journal. `odd`: only a reading from zero sees it whole. `unsettled`: as far as this stretch tells."""

    defects: list[Seen]
    tail: Tail | None
    reading: Reading
    odd: bool
    #: Whether the frame that was indexed last was met; and which of those that are not where they were seen.
    met: bool
    found: frozenset[tuple[int, str]]
    turns: dict[str, TurnView]
    segments: dict[str, Any] | None
    #: The session's; "" where it was not folded.
    state: str = ""


class JournalAudit:
    """All journals of a keep. Iterate `keep()`, then `sessions()`; afterwards the rest is true.

    `witness`: as it was before any journal was read, so that it is never ahead of one that is whole. `proven`: (journal, sums)
    that were found to hold: lives on when the same is done again because the index moved.
    """

    def __init__(
        self, host: Host, root: str, store: Store | None, witness: Witness, *, deep: bool, proven: set[tuple[str, str]]
    ) -> None:
        self._host = host
        self._root = root
        self._store = store
        self._deep = deep
        self._proven = proven
        self._standings = store.standings() if store else []
        self._indexed = {one[0] for one in self._standings}
        self._known: dict[str, list[Seen]] = {}
        for session, seen in store.faults() if store else ():
            self._known.setdefault(session, []).append(seen)
        #: What journals were seen to hold; by the index where there is no witness.
        self._witness = witness
        self._seen = self._seen_now = witness.seen if witness.size or not store else _seen_by(store)
        #: What undos took off journals; looked up when something is missed.
        self._taken: TakenFrames | None = None
        self.dead = set(store.tombstones()) if store else set()
        self.accepted = store.accepted() if store else set()
        #: Of the sessions whose journals are not as they were when they were indexed.
        self.open: list[Open] = []
        self.reread: set[str] = set()
        self.checked = {"journals": 0, "read": 0, "mended": 0, "accepted": 0, "busy": 0}
        #: Journals whose frames are there and whose session was deleted.
        self.buried: list[tuple[str, str]] = []
        #: (path, when it was changed last) of temporary files.
        self.leftovers: list[str] = []
        self.unread: set[str] = set()
        #: Those of which a loss is told already, be it accepted. What those carry that were read now. All that are there.
        self._lossy: set[str] = set()
        self._carried: dict[str, tuple[str, int]] = {}
        self._names: set[str] = set()
        #: How the keep's own journal looked when it was read; and what stands in it that is not indexed (all of it, or the end).
        self.keep_mark: FolderMark | None = None
        self._news: tuple[bool, list[Event]] | None = None
        #: Folders that could not be listed, and what is told of them.
        self._closed: tuple[str, ...] = ()
        self._strays: list[Fault] = []

    # -- which

    def keep(self) -> Iterator[Fault]:
        """The keep's own: who is deleted and what was accepted is told there."""
        yield from check_each([KEEP], self._audit_journal, self._unreadable)

    def sessions(self) -> Iterator[Fault]:
        names = self._names = {name for agent in self._listed(SESSIONS) for name in self._listed(agent)}
        quiet = self._quiet() & names
        self.checked["journals"] += len(quiet)
        yield from check_each(sorted(names - quiet), self._audit_journal, self._unreadable)
        yield from self._strays
        gone = (self._indexed | self._seen.keys()) - names - {KEEP}
        hidden = {name for name in gone if name.startswith(self._closed)} if self._closed else set()
        yield from check_each(sorted(gone - hidden), self._vanished, self._unreadable)

    def _listed(self, name: str) -> list[str]:
        try:
            return [f"{name}/{one}" for one in self._host.names(f"{self._root}/{name}")]
        except FileNotFoundError:
            return []  # nothing was recorded yet, or it is just being deleted
        except OSError as problem:
            self._strays.append(self._unreadable(name, problem.strerror or str(problem)))
            self._closed += (f"{name}/",)
            return []

    def _place(self, name: str) -> JournalPlace | None:
        return self._store.place(name) if self._store and name in self._indexed else None

    def _unreadable(self, name: str, why: str) -> Fault:
        self.unread.add(name)
        return made("journal_unreadable", f"{self._root}/{name}", why, name, self._session_seen(name), why=why)

    def _session_seen(self, name: str) -> str:
        """Whose journal it was; "" where nobody knows."""
        place = self._place(name)
        return place.session if place else next((one.session for one in self._seen.get(name, ())), "")

    def _vanished(self, name: str) -> Iterator[Fault]:
        if part_fingerprints.mark_of(self._host, f"{self._root}/{name}", None) is None:
            yield from self._lost(name, self._seen.get(name, ()), (), ())

    def _unmet(self, name: str, place: JournalPlace | None = None) -> list[Sighting]:
        """What is not where it was seen. `place`: the journal is as it was when this was indexed: nothing is opened for that."""
        known = place.position[2:] if place else ()
        return [one for one in self._seen.get(name, ()) if one.frame != known and not is_there(self._host, self._root, one)]

    def _lost(
        self, name: str, unmet: Iterable[Sighting], met: Collection[tuple[int, str]], seen: Iterable[Seen], end: int = 0
    ) -> Iterator[Fault]:
        """What the journal held and has not any more. `unmet`: not where it was seen; `met`: of these, those that are accounted
        for; `seen`: faults that tell of it by themselves; `end`: the seq with which the journal ends."""
        place = self._place(name)
        for one in unmet:
            told = one.frame in met or any(tells_of(fault, one.part, one.seq) for fault in seen)
            if told or one.session in self.dead or self._is_no_loss(name, one.session, one.frame) or not self._is_seen(one):
                continue
            after = one.after if one.after >= 0 else end
            remembered = place is None or place.position[2:] != one.frame
            # Where hooks or a tap spoke, nobody knows whose words these were; of lines capture may, and they can be taken again.
            self._lossy.update(() if one.others else [name])
            what = _said_of_end(one, after, is_gone=name not in self._names and name != KEEP)
            yield end_lost(self._root, one, what, after=after, witnessed=self._witnessed(name, one), remembered=remembered)

    def _witnessed(self, name: str, one: Sighting | None = None) -> dict[str, Any] | None:
        """What was known of a session that no line of a transcript says: its state, and whether others spoke. `one`: up to that
        frame."""
        known = one or next((one for one in reversed(self._seen.get(name, ())) if one.state), None)
        return {"state": known.state, "others": known.others} if known and known.session else None

    def _is_no_loss(self, name: str, session: str, frame: tuple[int, str]) -> bool:
        """Whether a frame is gone because its session was deleted, or because an undo took it off."""
        if self._taken is None:
            from dreamkeep.recovery.repair.ledger import read_all_taken_frames

            self._taken = read_all_taken_frames(self._host, self._root)
        return frame in self._taken.get(name, ()) or self._deleted_since(session)

    def _is_seen(self, one: Sighting) -> bool:
        """Whether the witness still tells of it: a deletion that was lifted since took that out. Asked after the tombstones."""
        if self._seen is self._witness.seen and self._host.stat(f"{self._root}/{WITNESS}") != self._witness.at:
            now = load(self._host, self._root)
            self._witness = now._replace(seen=self._seen)
            self._seen_now = now.seen
        return one.frame in {other.frame for other in self._seen_now.get(one.journal, ())}

    def _deleted_since(self, session: str) -> bool:
        """Whether it was deleted after it was seen, also if that was lifted again: what is known of it is history."""
        keep = self._place(KEEP)
        tombs = Tombstones(self._host, self._root, keep.position if keep else None, self.dead)
        try:
            return bool(session) and (tombs.has(session) or (keep is not None and session in tombs.buried))
        except OSError:
            return False  # that the keep's own journal can't be read is told of that one

    def captured(self, cache: Cache) -> Iterator[Fault]:
        """What capture remembers to have journaled, and no journal has: frames are lost that nothing else tells of. After
        `sessions()`. `cache`: as it was before any journal was read, so that it is never ahead of one that is whole."""
        indexed = self._store.sources() if self._store else {}
        lost: dict[str, dict[str, SourceCursor]] = {}
        of: dict[str, str] = {}
        for path, agent, native, role, journal, word in cache.captured():
            name = f"{SESSIONS}/{agent}/{journal}"
            carried = self._carried[name][0] if name in self._carried else indexed.get(name, "")
            if f" {word}\n" in carried or not self._may_lack(name, session := f"{agent}:{native}"):
                continue
            if known := lacks(self._host, part_fingerprints.parse_sources(carried), role, path, word):
                lost.setdefault(name, {})[path] = known
                of[name] = session
        yield from check_each(sorted(lost), lambda name: self._not_here(name, of[name], lost[name]), self._unreadable)

    def _may_lack(self, name: str, session: str) -> bool:
        """Not where it is told already, nor where nobody can look, nor of what was deleted."""
        if name in self._lossy or name in self.unread or session in self.dead or name.startswith(self._closed or ("\0",)):
            return False
        return folder_of(session) == name

    def _not_here(self, name: str, session: str, lost: dict[str, SourceCursor]) -> Iterator[Fault]:
        if self._deleted_since(session):
            return
        here = name in self._names
        place = self._place(name)
        after = self._carried[name][1] if name in self._carried else place.position.seq if place else 0
        files = ", ".join(f"{word.offset} bytes of `{path}`" for path, word in sorted(lost.items()))
        told = "the journal holds less than was captured" if here else "the whole journal is missing; what was captured"
        what = f"{told}: {files}"
        key = " ".join(f"{path} {word.generation} {word.offset} {word.crc}" for path, word in sorted(lost.items()))
        yield captured_lost(self._root, name, session, what, after=after if here else 0, key=key)

    # -- one

    def _quiet(self) -> set[str]:
        """The common case, in one piece because there are thousands: one part, all of it indexed, nothing known against it, and
        it looks as it did. Then there is nothing to tell, and two stats said so (and, when asked, its checksum)."""
        loud = {folder_of(session) for session in (*self._known, *self.dead) if session}
        seen = {name: {one.frame for one in found} for name, found in self._seen.items()}
        deep, proven, part_name = self._deep, self._proven, parts.name
        files: dict[str, str] = {}
        looks_of: list[Look] = []
        for name, _, sums, plain, part, size, mtime_ns, inode, folder_mtime_ns, *frame in self._standings:
            if plain and name not in loud and seen.get(name, set()) <= {tuple(frame)} and (not deep or (name, sums) in proven):
                files[name] = path = f"{name}/{part_name(part)}"
                looks_of += (path, size, mtime_ns, inode), (name, 0, folder_mtime_ns, 0)
        try:
            changed = set(self._host.changed(self._root, looks_of))
        except OSError:
            return set()  # whoever looks closer tells why
        return {name for name, path in files.items() if name not in changed and path not in changed} if changed else set(files)

    def _audit_journal(self, name: str) -> Iterator[Fault]:
        self.checked["journals"] += 1
        for pause_s in _PAUSES_S:
            try:
                yield from list(self._now(name))
                return
            except FileNotFoundError:
                # Compressed, deleted or replaced under our eyes; what is not there any more can't be wrong.
                self._host.sleep(pause_s)
        yield from self._now(name)

    def _now(self, name: str) -> Iterator[Fault]:
        place = self._place(name)
        if place and place.session and place.session in self.dead:
            self.buried.append((place.session, name))
        elif link := self._link_in(name, place):
            self.unread.add(name)
            what = "it is a link, and its target is not part of the keep"
            yield made("journal_unreadable", link, what, name, self._session_seen(name), why=what, step=_NO_LINK)
        elif place and not self._deep and self._is_as_indexed(name, place):
            if name == KEEP:
                self.keep_mark = place.mark
            yield from self._as_indexed(name, place)
        else:
            yield from self._looked_at(name, place)

    def _link_in(self, name: str, place: JournalPlace | None) -> str:
        """The first part that is a link; "" when none is. Of several parts that were indexed a deep audit looks at all."""
        folder = f"{self._root}/{name}"
        try:
            if self._deep or not place:
                found = [one for one in self._host.names(folder) if parts.number(one) is not None]
            else:
                found = [] if place.looks else [parts.name(place.mark.part)]
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return next((f"{folder}/{one}" for one in sorted(found) if is_link(self._host, f"{folder}/{one}")), "")

    def _is_as_indexed(self, name: str, place: JournalPlace) -> bool:
        folder = f"{self._root}/{name}"
        hot = self._host.stat(f"{folder}/{parts.name(place.mark.part)}")
        return part_fingerprints.unchanged(self._host, folder, place) and (hot is None or bool(hot.mode & OWNER_READS))

    def _as_indexed(self, name: str, place: JournalPlace) -> Iterator[Fault]:
        yield from self._frames_as_indexed(name, place)
        if place.looks:
            yield from self._files(name, place.session, part_fingerprints.names_in(place.looks), place.mark.part)

    def _frames_as_indexed(self, name: str, place: JournalPlace) -> Iterator[Fault]:
        """Nothing is opened, except where something lies behind the last frame."""
        known = self._known.get(place.session)
        if known:
            yield from self._make_faults(name, place.session, known)
        yield from self._lost(name, self._unmet(name, place), (), known or (), place.position.seq)
        if not self._ends(place):
            yield from self._tail(name, place.session, self._under_lock(name, lambda: self._read_tail(f"{self._root}/{name}")))

    def _looked_at(self, name: str, place: JournalPlace | None) -> Iterator[Fault]:
        folder = f"{self._root}/{name}"
        mark = part_fingerprints.mark_of(self._host, folder, place.mark if place else None)
        if mark is None:
            yield from self._no_journal(name, place)
            return
        session = place.session if place else self._session_of(name)
        if session is None:
            yield from self._nobodys(name, mark)
            return
        if session in self.dead:
            self.buried.append((session, name))
            return
        yield from self._content(name, session, place, mark)
        yield from self._files(name, session, self._host.names(folder), mark.part)

    def _nobodys(self, name: str, mark: FolderMark) -> Iterator[Fault]:
        """No frame says whose it is: perhaps the first is just being written, or all of it deleted. So it counts only if it is
        still so while nobody writes; else the next audit tells what is there by then."""
        found = self._under_lock(
            name, lambda: (self._session_of(name), part_fingerprints.mark_of(self._host, f"{self._root}/{name}", None))
        )
        if found == (None, mark):
            yield self._unreadable(name, "no frame names its session, or it belongs in another folder")

    def _no_journal(self, name: str, place: JournalPlace | None) -> Iterator[Fault]:
        """An empty folder is what a crash leaves before the first frame, and a part may have come since we looked. Anything else
        is none of ours."""
        yield from self._vanished(name)
        if place or name in self._seen:
            return
        at = self._host.stat(f"{self._root}/{name}")
        if at is None:
            if name == KEEP and self._host.stat(f"{self._root}/{SESSIONS}") is not None:
                yield self._unreadable(name, "it is missing, so deletions and accepted problems are unknown")
            return
        others = self._host.names(f"{self._root}/{name}") if at.is_folder else [""]
        if any(other != parts.LOCK and not is_temp(other) and parts.number(other) is None for other in others):
            yield self._unreadable(name, "this is not a journal")

    def _content(self, name: str, session: str, place: JournalPlace | None, mark: FolderMark) -> Iterator[Fault]:
        if name == KEEP:
            self.keep_mark = mark
        same = place is not None and self._same(name, place)
        start = place.position if place and same else None
        if start and place and mark == place.mark:
            yield from self._frames_as_indexed(name, place)  # every byte was to be read, and it was: the checksums hold
            return
        if start and (start.part, start.offset) == (mark.part, mark.size + 1):
            start = None  # the last frame still lacks its line feed
        unmet = self._unmet(name)
        read = self._read(name, session, start, place, unmet)
        if start and read.odd:
            start, read = None, self._read(name, session, None, place, unmet)
        drifted = place is not None and not same and not read.met
        if read.tail or drifted or unmet or any(defect.part == read.reading.last_part for defect in read.defects):
            read = self._sure(name, read, place, unmet)
        yield from self._make_faults(name, session, [*(self._known.get(session, ()) if start else ()), *read.defects])
        yield from self._tail(name, session, read.tail)
        back = {one.frame for one in unmet if is_back(one, self._carried[name][0], read.state)}
        lost = list(self._lost(name, unmet, read.found | back, read.defects, read.reading.position.seq))
        yield from lost
        if place and not same and not lost:
            yield from self._drifted(name, place, read)
        self.reread.add(session)
        if read.segments is not None:
            self.open.append(Open(session, name, mark, self._unsettled(session, start, read), read.segments))

    def _ends(self, place: JournalPlace) -> bool:
        """Whether the last frame that was indexed is the end of the file."""
        return (place.mark.part, place.mark.size) == (
            place.position.part,
            place.position.offset,
        ) or part_fingerprints.frozen_last(place)

    # -- is it what was indexed?

    def prove(self) -> Iterator[Fault]:
        """Every byte that was indexed, by its checksum: nothing else of an audit takes long, so several files at a time. Tells
        nothing itself: what is not proven here is looked at more closely later."""
        from concurrent.futures import ThreadPoolExecutor

        todo = [(name, last, sums) for name, last, sums, *_ in self._standings if sums and (name, sums) not in self._proven]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(self._prove, (todo[n : n + AT_ONCE] for n in range(0, len(todo), AT_ONCE))):
                pass
        yield from ()

    def _prove(self, some: list[tuple[str, int, str]]) -> None:
        room = part_fingerprints.room()
        for name, last, sums in some:
            try:
                if part_fingerprints.hold(self._host, f"{self._root}/{name}", sums, last, room):
                    self._proven.add((name, sums))
            except OSError:
                continue  # whoever looks closer tells why

    def _same(self, name: str, place: JournalPlace) -> bool:
        """Whether all that was indexed is still so: by checksums, of all parts or of those that look other than they did."""
        if self._deep or not place.sums:
            return (name, place.sums) in self._proven
        folder = f"{self._root}/{name}"
        last = place.position.part
        changed = {*part_fingerprints.changed_parts(self._host, folder, place), last}
        return part_fingerprints.hold(self._host, folder, place.sums, last, which=changed)

    def _drifted(self, name: str, place: JournalPlace, read: JournalReading) -> Iterator[Fault]:
        """The index knows of something else than what lies there. What is gone and was never known to be on disk is no fault."""
        if read.met and not read.defects and not read.tail and place.sums and place.mark.part:
            yield self._drift(name, place, "the journal is intact, but differs from what was indexed")

    def _drift(self, name: str, place: JournalPlace, what: str) -> Fault:
        return made("index_drift", f"{self._root}/{name}", what, name, place.session, path=f"{self._root}/index.sqlite")

    # -- reading

    def _read(
        self, name: str, session: str, start: Position | None, place: JournalPlace | None, unmet: Collection[Sighting]
    ) -> JournalReading:
        """`place`: what was indexed of it, if anything. `unmet`: what is not where it was seen."""
        self.checked["read"] += 1
        sources = part_fingerprints.parse_sources(place.sources) if place and start else {}
        note_sources = partial(part_fingerprints.note_sources, sources)
        last = _last_of(place)
        wanted = [last, *(one.frame for one in unmet)]
        scan = Scan(self._host, f"{self._root}/{name}", start, fold=note_sources, wanted=wanted)
        rows = None
        if name == KEEP:
            scan.strange += self._take_keep(scan.events(), start)
        elif rows := self._fold(session, start, scan):
            scan.strange += rows.strange
        self._carried[name] = part_fingerprints.sources_text(sources), scan.reading.position.seq
        return JournalReading(
            scan.defects(),
            scan.reading.tail,
            scan.reading,
            scan.needs_full_scan(),
            last in scan.found_frames,
            frozenset(scan.found_frames),
            rows.changes.turns if rows else {},
            rows.state().get("segments") if rows else None,
            rows.seen().state or "" if rows else "",
        )

    def _take_keep(self, found: Iterable[tuple[int, Event]], start: Position | None) -> list[int]:
        """The seqs of those that are not what their kind promises."""
        if start is None:
            self.dead, self.accepted = set(), set()
        placed = list(found)
        self._news = start is None, [event for _, event in placed]
        for event in self._news[1]:
            if session := named(event):
                (self.dead.add if event.kind == Kind.SESSION_DELETED else self.dead.discard)(session)
            elif event.kind == Kind.FAULT_ACCEPTED:
                self.accepted.add(str(event.body.get("fault")))
        return [seq for seq, event in placed if is_strange(event)]

    def memory(self) -> Memory | None:
        """What is remembered, up to where the keep's journal was read; None when no dream and no page left anything there, or
        nobody can read it. After `keep()`."""
        anew, news = self._news or (False, [])
        store = self._store if not anew else None
        said = any(event.kind.startswith(("dream.", "page.")) for event in news)
        if self.keep_mark is None or not (said or (store and (store.memory_table("runs") or store.memory_table("pages")))):
            return None
        from dreamkeep.memory.memory import Memory, fold

        if store is None:
            return fold(news)
        memory = Memory.on_demand(store.memory_row, store.memory_table)
        for event in news:
            memory.apply(event)
        # What was undone never was: that is to be told from the beginning.
        return fold(event for _, event in read_events(self._host, f"{self._root}/{KEEP}")) if memory.needs_refold else memory

    def is_current(self) -> bool:
        """Whether nothing was said in the keep's own journal since it was read."""
        return part_fingerprints.mark_of(self._host, f"{self._root}/{KEEP}", None) == self.keep_mark

    def _fold(self, session: str, start: Position | None, scan: Scan) -> RowCollector | None:
        """As the index would do it, and put nowhere. None when it got too long for that: then only the bytes were looked at."""
        store = self._store if start else None
        summary = store.session(session) if store else life.empty(session)
        rows: RowCollector | None = None
        if summary is not None:
            state = json.loads(store.state(session)) if store else {}
            rows = RowCollector(summary, state, Stored(store, session, False) if store else NoEarlierResults())
        for seq, event in scan.events():
            if rows and scan.reading.bytes_read > _FOLDED_BYTES:
                rows = None
            if rows:
                rows.add(seq, event)
        return rows

    def _unsettled(self, session: str, start: Position | None, read: JournalReading) -> list[TurnView]:
        known = {turn.id: turn for turn in self._store.turns(session)} if self._store and start else {}
        return [turn for turn in {**known, **read.turns}.values() if turn.state in (SUBMITTED, STARTED) and turn.owner]

    # -- under a writer's hands

    def _sure(self, name: str, read: JournalReading, place: JournalPlace | None, unmet: Collection[Sighting]) -> JournalReading:
        """Of what is odd in the part being written only that which is still so while nobody writes."""
        last = _last_of(place)
        frames = [one.frame for one in unmet]
        scan = Scan(self._host, f"{self._root}/{name}", read.reading.last_part_start, heads=True, wanted=[last, *frames])
        second = self._under_lock(name, scan.run)
        there = {defect[:3] for defect in second.reading.defects} if second else set()
        defects = [defect for defect in read.defects if defect.part != read.reading.last_part or defect[:3] in there]
        if second is None:
            return read._replace(defects=defects, tail=None, met=True, found=frozenset(frames))
        found = read.found | second.found_frames
        return read._replace(defects=defects, tail=second.reading.tail, met=read.met or last in found, found=found)

    def _under_lock(self, name: str, act: Callable[[], T]) -> T | None:
        """Look while no writer may write; None when one holds the lock all the time. Makes no lock file."""
        folder = f"{self._root}/{name}"
        try:
            handle = self._host.open_read(f"{folder}/{parts.LOCK}")
        except FileNotFoundError:
            return act()
        try:
            lock(self._host, handle, where=folder, wait_s=_WAIT_S, shared=True)
            return act()
        except Busy:
            self.checked["busy"] += 1
            return None
        finally:
            self._host.close(handle)

    def _read_tail(self, folder: str) -> Tail | None:
        """How it ends, by its last part alone."""
        numbers = parts.numbers(self._host, folder)
        head = read_head(self._host, folder, numbers[-1]) if numbers else None
        start = Position(numbers[-1], 0, head["seq"] - 1, head["prev"]) if head else None
        return Scan(self._host, folder, start, heads=True).run().reading.tail

    def _session_of(self, name: str) -> str | None:
        """By what its heads say, or else any frame, or else the witness; None when that would lie elsewhere (a copy by hand)."""
        if name == KEEP:
            return ""
        return session_of(self._host, f"{self._root}/{name}", name) or self._session_seen(name) or None

    # -- telling

    def _make_faults(self, name: str, session: str, seen: Iterable[Seen]) -> Iterator[Fault]:
        for one in seen:
            if one.mended:
                self.checked["accepted" if one.accepted else "mended"] += 1
            else:
                self._lossy.update([name] if one.missing or one.kind in ("cold", "chunks") else ())
                yield make_fault(self._root, name, session, one, witnessed=self._witnessed(name))

    def _tail(self, name: str, session: str, tail: Tail | None) -> Iterator[Fault]:
        if tail:
            yield tail_told(self._root, name, session, tail)

    def _files(self, name: str, session: str, names: list[str], last: int) -> Iterator[Fault]:
        """Temporary files, and parts that lie there in both forms."""
        folder = f"{self._root}/{name}"
        self.leftovers += [f"{folder}/{one}" for one in names if is_temp(one)]
        for one in names:
            part = parts.number(one)
            if part is None or not one.endswith(".zst"):
                continue
            if self._host.stat(f"{folder}/{parts.name(part)}") is not None:
                yield from self._twice(name, session, part)

    def _twice(self, name: str, session: str, part: int) -> Iterator[Fault]:
        """Who compresses holds the journal's lock until the plain form is gone."""
        folder = f"{self._root}/{name}"
        plain = f"{folder}/{parts.name(part)}"

        def compared() -> bool | None:
            if self._host.stat(plain) is None or self._host.stat(f"{plain}.zst") is None:
                return None
            return parts.forms_agree(self._host, folder, part)

        same = self._under_lock(name, compared)
        if same:
            yield made("journal_twice", f"{plain}.zst", "the part exists both plain and compressed", name, session, part=part)
        elif same is False:
            what = "the compressed form differs from the plain one; the plain one is read"
            yield made("journal_differs", f"{plain}.zst", what, name, session, part=part)


def _last_of(place: JournalPlace | None) -> tuple[int, str]:
    """(seq, crc) of the frame that was indexed last."""
    return (place.position.seq, place.position.crc) if place else (0, "")


def _seen_by(store: Store) -> dict[str, list[Sighting]]:
    return {name: [sighting(store, place)] for name, place in store.places().items() if place.position.seq}


def _said_of_end(one: Sighting, after: int, *, is_gone: bool) -> str:
    if is_gone:
        return f"the whole journal is missing; it held {one.seq} frames"
    ends = f"it ends at {after}" if one.seq > after else "has other frames there"
    return f"the journal held frames up to {one.seq}, but now {ends}: truncated, an older copy, or a power cut"


def is_temp(name: str) -> bool:
    """A file that was to get another name when it was whole."""
    return _TEMP.fullmatch(name) is not None
