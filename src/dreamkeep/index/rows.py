"""Events → rows. Pure: the same frames give the same rows, in one go or bit by bit."""

from __future__ import annotations

from collections.abc import Callable

from dreamkeep.event import Event
from dreamkeep.session import summary as life
from dreamkeep.session import turns
from dreamkeep.session.messages import Message, messages
from dreamkeep.session.summary import Summary
from dreamkeep.session.turns import Turn


class Rows:
    """Collects what a stretch of events adds. `known` looks up turns that began before the stretch."""

    def __init__(self, summary: Summary, known: Callable[[str], Turn | None]) -> None:
        self.summary = summary
        self.turns: dict[str, Turn] = {}
        self.messages: list[Message] = []
        self.strange: list[int] = []
        self._known = known

    def add(self, seq: int, event: Event) -> None:
        try:
            summary = life.step(self.summary, event)
            said = messages(seq, event)
            turn = self._turn_after(seq, event)
        except (KeyError, TypeError, AttributeError):
            # Its checksum holds, but its body is not what its kind promises: kept in the journal, reported, no reason to stop.
            self.strange.append(seq)
            return
        self.summary = summary
        self.messages += said
        if turn:
            self.turns[turn.id] = turn

    def _turn_after(self, seq: int, event: Event) -> Turn | None:
        if event.kind not in turns.KINDS:
            return None
        turn_id = event.body["turn"]
        return turns.step(self.turns.get(turn_id) or self._known(turn_id), seq, event)
