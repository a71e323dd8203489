"""Which sessions are deleted while a run reads them, and whether others changed what is remembered meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dreamkeep.dream.parts import Ask
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.tombs import Tombstones

#: Events of these families change what is remembered; so do the kinds below, which take something away.
_FAMILIES = frozenset(("insight", "note", "task", "project"))
_KINDS = frozenset((Kind.DREAM_UNDONE, Kind.SESSION_DELETED))


class Deletions:
    """The index is asked once. After that, only what is new in the keep's own journal is read."""

    def __init__(self, host: Host, root: str, ask: Ask[Any], forget: Callable[[str], object]) -> None:
        """`forget`: removes what was learned in a deleted session from the keep's own journal."""
        at, deleted = ask(lambda store: (store.place(KEEP), set(store.tombstones())))
        self._tombs = Tombstones(host, root, at.position if at else None, deleted, self._hear)
        self.forget = forget
        self._own: set[str] = set()
        self._is_changed = False

    def has(self, session: str) -> bool:
        return self._tombs.has(session)

    def note_own(self, events: Iterable[Event]) -> None:
        """Events that the run is about to append."""
        self._own.update(event.id for event in events)

    def pop_changed(self) -> bool:
        """Whether somebody else changed what is remembered since this was asked last: a note, an edited page, an agent's tag."""
        self._tombs.follow()
        changed, self._is_changed = self._is_changed, False
        return changed

    def _hear(self, event: Event) -> None:
        if event.id in self._own:
            self._own.discard(event.id)
        elif event.kind.partition(".")[0] in _FAMILIES or event.kind in _KINDS:
            self._is_changed = True
