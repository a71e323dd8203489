"""One journal read for an audit: what is new since it was indexed, or all of it. Nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dreamkeep.event import Event, Kind
from dreamkeep.index import part_fingerprints
from dreamkeep.index.rows import RowCollector, Stored
from dreamkeep.index.store import FolderMark, JournalPlace, Store
from dreamkeep.journal import parts
from dreamkeep.journal.open_state import read_head
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.reader import JournalDefect, Position, Tail
from dreamkeep.journal.scan import FrameKey, Scan, read_events
from dreamkeep.journal.tombs import is_strange, named
from dreamkeep.recovery.audit.journal_state import JournalState
from dreamkeep.session import summary as life
from dreamkeep.session.changes import NoEarlierResults

if TYPE_CHECKING:
    from dreamkeep.memory.memory import Memory

#: More than this of one journal is not folded in memory: its open turns are seen when it is indexed.
_FOLDED_BYTES = 64 << 20


class JournalReading(NamedTuple):
    """`found`: the frames that were looked for and are there. `rows`: what the index would store; None where nothing was
    folded."""

    scan: Scan
    defects: list[JournalDefect]
    tail: Tail | None
    found: set[FrameKey]
    rows: RowCollector | None

    @property
    def state(self) -> str:
        """The session's; "" where nothing was folded."""
        return self.rows.seen().state or "" if self.rows else ""


def read_journal(
    state: JournalState,
    own: OwnJournal,
    name: str,
    session: str,
    start: Position | None,
    place: JournalPlace | None,
    wanted: Collection[FrameKey],
) -> JournalReading:
    """`place`: what was indexed of it, if anything. `wanted`: frames to look for."""
    state.checked["read"] += 1
    sources = part_fingerprints.parse_sources(place.sources) if place and start else {}
    note_sources = partial(part_fingerprints.note_sources, sources)
    scan = Scan(state.host, f"{state.root}/{name}", start, fold=note_sources, wanted=wanted)
    rows = None
    if name == KEEP:
        own.read(scan, from_start=start is None)
    elif rows := _fold(state.store if start else None, session, scan):
        scan.strange += rows.strange
    state.reached[name] = part_fingerprints.sources_text(sources), scan.reading.position.seq
    return JournalReading(scan, scan.defects(), scan.reading.tail, scan.found_frames, rows)


def _fold(store: Store | None, session: str, scan: Scan) -> RowCollector | None:
    """As the index would do it. None when it is too long for that: then only the bytes were looked at."""
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


def confirm(state: JournalState, name: str, read: JournalReading, wanted: Collection[FrameKey]) -> JournalReading:
    """Of what is odd in the last part, only what is still there while nobody writes. Where a writer holds the lock all the time,
    nothing counts as odd."""
    last_part = read.scan.reading.last_part
    scan = Scan(state.host, f"{state.root}/{name}", read.scan.reading.last_part_start, heads=True, wanted=wanted)
    second = state.under_lock(name, scan.run)
    still = {defect[:3] for defect in second.reading.defects} if second else set()
    read = read._replace(defects=[defect for defect in read.defects if defect.part != last_part or defect[:3] in still])
    if second is None:
        return read._replace(tail=None, found=set(wanted))
    return read._replace(tail=second.reading.tail, found=read.found | second.found_frames)


def read_tail(state: JournalState, name: str) -> Tail | None:
    """How a journal ends, by its last part alone, while nobody writes."""

    def read() -> Tail | None:
        folder = f"{state.root}/{name}"
        numbers = parts.numbers(state.host, folder)
        head = read_head(state.host, folder, numbers[-1]) if numbers else None
        start = Position(numbers[-1], 0, head["seq"] - 1, head["prev"]) if head else None
        return Scan(state.host, folder, start, heads=True).run().reading.tail

    return state.under_lock(name, read)


class OwnJournal:
    """The keep's own journal: who is deleted, what was accepted, and what is remembered."""

    def __init__(self, state: JournalState) -> None:
        self._state = state
        #: How its folder looked when it was read.
        self.mark: FolderMark | None = None
        self._events: list[Event] = []
        self._from_start = False

    def read(self, scan: Scan, *, from_start: bool) -> None:
        dead, accepted = self._state.dead, self._state.accepted
        if from_start:
            dead.clear()
            accepted.clear()
        found = list(scan.events())
        self._from_start, self._events = from_start, [event for _, event in found]
        for event in self._events:
            if session := named(event):
                (dead.add if event.kind == Kind.SESSION_DELETED else dead.discard)(session)
            elif event.kind == Kind.FAULT_ACCEPTED:
                accepted.add(str(event.body.get("fault")))
        scan.strange += (seq for seq, event in found if is_strange(event))

    def memory(self) -> Memory | None:
        """What is remembered, up to where this journal was read; None when there are neither dreams nor pages, or nobody can read
        it."""
        store = self._state.store if not self._from_start else None
        news = any(event.kind.startswith(("dream.", "page.")) for event in self._events)
        if self.mark is None or not (news or (store and (store.memory_table("runs") or store.memory_table("pages")))):
            return None
        from dreamkeep.memory.memory import Memory, fold

        if store is None:
            return fold(self._events)
        memory = Memory.on_demand(store.memory_row, store.memory_table)
        for event in self._events:
            memory.apply(event)
        if memory.needs_refold:  # an undone run leaves no trace: fold the journal without it
            return fold(event for _, event in read_events(self._state.host, f"{self._state.root}/{KEEP}"))
        return memory

    def is_current(self) -> bool:
        """Whether nothing was added to it since it was read."""
        return part_fingerprints.read_folder_mark(self._state.host, f"{self._state.root}/{KEEP}", None) == self.mark
