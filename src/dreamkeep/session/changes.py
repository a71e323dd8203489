"""Changes that a stretch of events makes to the view of a session. Pure."""

from __future__ import annotations

from typing import Protocol

from dreamkeep.session.messages import Message, Taken
from dreamkeep.session.turns import TurnView


class EarlierResults(Protocol):
    """What the index has."""

    def message(self, key: str) -> Message | None: ...

    def twin(self, twin: str, not_heard: int, after: tuple[int, int]) -> Message | None:
        """The first message behind `after` with these words that did not come in on that channel yet."""

    def turn(self, turn: str) -> TurnView | None: ...

    def last_turns(self, count: int) -> list[TurnView]: ...


class NoEarlierResults:
    """For a session that is read from its beginning."""

    def message(self, key: str) -> Message | None:
        return None

    def twin(self, twin: str, not_heard: int, after: tuple[int, int]) -> Message | None:
        return None

    def turn(self, turn: str) -> TurnView | None:
        return None

    def last_turns(self, count: int) -> list[TurnView]:
        return []


class Changes:
    """What a stretch of events adds to the view, on top of the earlier results."""

    def __init__(self, known: EarlierResults) -> None:
        self._known = known
        self.messages: dict[tuple[int, int], Message] = {}
        self.keys: dict[str, tuple[int, int]] = {}
        self.twins: dict[tuple[int, int], str] = {}
        self.removed: set[tuple[int, int]] = set()
        self.turns: dict[str, TurnView] = {}
        #: What was taken back or restored, in this order.
        self.taken: list[Taken] = []
        self._by_twin: dict[str, list[tuple[int, int]]] = {}

    def message(self, key: str) -> Message | None:
        place = self.keys.get(key)
        if place:
            return self.messages.get(place)
        found = self._known.message(key)
        return self._latest(found) if found else None

    def _latest(self, found: Message) -> Message | None:
        """A message after the changes of this stretch."""
        place = found[:2]
        if place in self.removed or place in self.messages:
            return None if place in self.removed else self.messages[place]
        for taken in self.taken:
            found = taken.applied(found)
        return found

    def twin(self, twin: str, bit: int) -> Message | None:
        """The first of all messages with these words: the result must not depend on how much is stored already."""
        best = self._stored_twin(twin, bit)
        for place in self._by_twin.get(twin, ()):
            said = self.messages.get(place)
            if said and self.twins.get(place) == twin and not said.heard & bit and (best is None or place < best[:2]):
                best = said
        return best

    def _stored_twin(self, twin: str, bit: int) -> Message | None:
        after = (0, 0)
        while found := self._known.twin(twin, bit, after):
            after = found[:2]
            if after not in self.removed and after not in self.messages:
                return self._latest(found)
        return None

    def put(self, message: Message, key: str, twin: str) -> None:
        place = message[:2]
        self.messages[place] = message
        self.keys[key] = place
        if self.twins.get(place) != twin:
            self.twins[place] = twin
            self._by_twin.setdefault(twin, []).append(place)

    def remove(self, message: Message) -> None:
        self.removed.add(message[:2])
        self.messages.pop(message[:2], None)

    def take(self, taken: Taken) -> None:
        self.taken.append(taken)
        for place, message in self.messages.items():
            self.messages[place] = taken.applied(message)

    def turn(self, turn: str) -> TurnView | None:
        return self.turns.get(turn) or self._known.turn(turn)

    def last_turns(self, count: int) -> list[TurnView]:
        found = {turn.id: turn for turn in self._known.last_turns(count)} | self.turns
        return sorted(found.values(), key=lambda turn: (turn.seq, turn.n, turn.id))[-count:]
