"""The current items of an OpenAI Agents SDK session. A pure fold: nothing is ever rewritten, the latest event decides.

Each item has a key (`key_of`), so an item is taken back by its key, even if another process adds items meanwhile.
"""

from __future__ import annotations

from typing import Any

from dreamkeep.agents.shared.openai_items import key_of
from dreamkeep.event import Event, Kind

KINDS = frozenset((Kind.ITEMS_ADDED, Kind.ITEMS_POPPED, Kind.ITEMS_CLEARED))


class Current:
    """`last`: the id of the latest event that changed it, if any."""

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
