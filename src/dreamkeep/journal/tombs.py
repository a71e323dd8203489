"""Which sessions are deleted, by the keep's own journal. It is read once, then only what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from dreamkeep.event import Event, Kind
from dreamkeep.host import Host
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.reader import Position, Reading
from dreamkeep.journal.scan import events

_OF_THE_DEAD = frozenset((Kind.SESSION_DELETED, Kind.SESSION_UNDELETED))


def named(event: Event) -> str:
    """The session that a tombstone or its undoing is about; "" for other events and where none is named."""
    said = event.body.get("session") if event.kind in _OF_THE_DEAD and isinstance(event.body, dict) else None
    return said if isinstance(said, str) and _is_text(said) else ""


def _is_text(said: str) -> bool:
    """Without lone surrogates: they can't be in the name of a folder or in a row."""
    return not any("\ud800" <= c <= "\udfff" for c in said)


def is_strange(event: Event) -> bool:
    """Its checksum is right, but it names no session, so it deletes none."""
    return event.kind in _OF_THE_DEAD and not named(event)


class Tombstones:
    def __init__(
        self,
        host: Host,
        root: str,
        position: Position | None = None,
        dead: Iterable[str] = (),
        hear: Callable[[Event], object] = lambda event: None,
    ) -> None:
        """`position`, `dead`: what the caller has read already. `hear` gets every event that is read here."""
        self._host = host
        self._hear = hear
        self._folder = f"{root}/{KEEP}"
        self._position = position
        self._dead = set(dead)
        #: Deleted in what was read here, even if that was undone.
        self.buried: set[str] = set()

    def has(self, session: str) -> bool:
        return session in self.all()

    def all(self) -> Set[str]:
        """As of now. Don't keep it."""
        self.follow()
        return self._dead

    def follow(self) -> None:
        reading = Reading(self._host, self._folder, self._position)
        for _, event in events(reading):
            self._hear(event)
            if not (said := named(event)):
                continue
            if event.kind == Kind.SESSION_DELETED:
                self._dead.add(said)
                self.buried.add(said)
            else:
                self._dead.discard(said)
        if reading.position.seq:
            self._position = reading.position
