"""Events → rows. Pure: the same frames give the same rows, in one go or bit by bit."""

from __future__ import annotations

from typing import Any

from dreamkeep.event import Event, Kind
from dreamkeep.session import summary as life
from dreamkeep.session import turns
from dreamkeep.session.fold import Changes, Fold, Known
from dreamkeep.session.messages import messages
from dreamkeep.session.records import RAW
from dreamkeep.session.summary import Summary
from dreamkeep.session.turns import Turn

_FOLDED = RAW | {Kind.LINEAGE_FOUND}


class Rows:
    """Collects what a stretch of events adds. `known` looks up what came before the stretch; `state` is what the fold remembers."""

    def __init__(self, summary: Summary, state: dict[str, Any], known: Known) -> None:
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
        except (KeyError, TypeError, AttributeError):
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

    def _turn_after(self, seq: int, event: Event) -> Turn | None:
        if event.kind not in turns.KINDS:
            return None
        return turns.step(self.changes.turn(event.body["turn"]), seq, event)
