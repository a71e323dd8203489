"""Which items a session of the OpenAI Agents SDK has now. A pure fold: nothing is ever rewritten, what was said last decides.

What is added may name itself (`key_of`), so that what is taken back is told by name, whoever adds meanwhile.
"""

from __future__ import annotations

from typing import Any

from dreamkeep.agents.shared.openai_items import key_of
from dreamkeep.event import Event, Kind

KINDS = frozenset((Kind.ITEMS_ADDED, Kind.ITEMS_POPPED, Kind.ITEMS_CLEARED))


class Current:
    """`last`: the id of the event that changed it last; None: none has."""

    def __init__(self) -> None:
        self.last: str | None = None
        self._items: dict[str, Any] = {}

    def step(self, event: Event) -> None:
        if event.kind not in KINDS:
            return
        self.last = event.id
        if event.kind == Kind.ITEMS_POPPED:
            self._items.pop(event.body.get("of", ""), None)
            return
        if event.kind == Kind.ITEMS_CLEARED or event.body.get("instead"):
            self._items.clear()
        for n, item in enumerate(event.body.get("items", ())):
            self._items[key_of(event.id, n)] = item

    def items(self, limit: int | None = None) -> list[Any]:
        """The latest `limit` of them, in order."""
        everything = list(self._items.values())
        return everything if limit is None or limit < 0 else everything[max(0, len(everything) - limit) :]

    def newest(self) -> tuple[str, Any] | None:
        return next(reversed(self._items.items()), None)
