"""Which sessions are deleted, by the keep's own journal. Read once, then only what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from dreamkeep.event import Event, Kind
from dreamkeep.host import Host
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.reader import Position, Reading, events


class Tombstones:
    def __init__(
        self,
        host: Host,
        root: str,
        position: Position | None = None,
        dead: Iterable[str] = (),
        hear: Callable[[Event], object] = lambda event: None,
    ) -> None:
        """`position`, `dead`: what somebody has read already. `hear`: is given all that is read here."""
        self._host = host
        self._hear = hear
        self._folder = f"{root}/{KEEP}"
        self._position = position
        self._dead = set(dead)
        #: Deleted in what was read here, also if that was lifted again.
        self.buried: set[str] = set()

    def has(self, session: str) -> bool:
        return session in self.all()

    def all(self) -> Set[str]:
        """As it is now; not to be kept."""
        self.follow()
        return self._dead

    def follow(self) -> None:
        reading = Reading(self._host, self._folder, self._position)
        for _, event in events(reading):
            self._hear(event)
            said = str(event.body.get("session"))  # anybody may have written it: what names none buries none
            if event.kind == Kind.SESSION_DELETED:
                self._dead.add(said)
                self.buried.add(said)
            elif event.kind == Kind.SESSION_UNDELETED:
                self._dead.discard(said)
        if reading.position.seq:
            self._position = reading.position
