"""Events → rows. Pure: the same frames give the same rows, in one go or bit by bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dreamkeep.event import HANDED, RAW, Event, Kind
from dreamkeep.index.store import IndexBatch, JournalPlace, Store
from dreamkeep.journal.reader import JournalDefect
from dreamkeep.session import summary as life
from dreamkeep.session import turns
from dreamkeep.session.changes import Changes, EarlierResults
from dreamkeep.session.fold import Fold
from dreamkeep.session.messages import Message, messages
from dreamkeep.session.summary import Summary
from dreamkeep.session.turns import TurnView

_FOLDED = RAW | HANDED | {Kind.LINEAGE_FOUND, Kind.SOURCE_CHANGED, Kind.COMPACTION_CLOSED}


class RowCollector:
    """Collects what a stretch of events adds. `known` looks up what came before it; `state` is what the fold remembers."""

    def __init__(self, summary: Summary, state: dict[str, Any], known: EarlierResults) -> None:
        self.summary = summary
        self.changes = Changes(known)
        self.strange: list[int] = []
        self._fold = Fold(summary.id, state, self.changes)

    def add(self, seq: int, event: Event) -> None:
        try:
            if event.kind in _FOLDED:
                self.summary = self._fold.step(self.summary, seq, event)
                return
            summary = life.step(self.summary, event)
            said = messages(seq, event)
            turn = self._turn_after(seq, event)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            # Its checksum holds, but its body is not what its kind promises: kept in the journal, reported, no reason to stop.
            self.strange.append(seq)
            return
        self.summary = summary
        for message in said:
            self.changes.messages[message[:2]] = message
        if turn:
            self.changes.turns[turn.id] = turn
            self._fold.native(seq, event)

    def seen(self) -> Summary:
        """The summary with what the fold counts."""
        return self._fold.counted(self.summary)

    def state(self) -> dict[str, Any]:
        return self._fold.state()

    def batch(self, place: JournalPlace, summary: Summary, faults: Sequence[JournalDefect] | None) -> IndexBatch:
        new = self.changes
        return IndexBatch(
            place,
            summary,
            list(new.turns.values()),
            list(new.messages.values()),
            faults,
            json.dumps(self.state()),  # not orjson: what a reader remembers may hold lone surrogates
            new.keys,
            new.twins,
            new.removed,
            new.taken,
        )

    def _turn_after(self, seq: int, event: Event) -> TurnView | None:
        if event.kind not in turns.KINDS:
            return None
        return turns.step(self.changes.turn(event.body["turn"]), seq, event)


class Stored:
    """What the store knows of a session. When all of it comes from this reading, most questions need not be asked."""

    def __init__(self, store: Store, session: str, from_zero: bool) -> None:
        self._store = store
        self._session = session
        self._keys: set[int] | None = set() if from_zero else None
        self._turns: set[int] | None = set() if from_zero else None

    def note(self, changes: Changes) -> None:
        if self._keys is not None and self._turns is not None:
            self._keys.update(map(hash, changes.keys))
            self._turns.update(map(hash, changes.turns))

    def message(self, key: str) -> Message | None:
        if self._keys is not None and hash(key) not in self._keys:
            return None
        return self._store.message(self._session, key)

    def twin(self, twin: str, not_heard: int, after: tuple[int, int]) -> Message | None:
        return self._store.twin(self._session, twin, not_heard, after)

    def turn(self, turn: str) -> TurnView | None:
        if self._turns is not None and hash(turn) not in self._turns:
            return None
        found = self._store.turns(self._session, [turn])
        return found[0] if found else None

    def last_turns(self, count: int) -> list[TurnView]:
        return self._store.last_turns(self._session, count)
