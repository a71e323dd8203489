"""What the checks of journals share during one audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dreamkeep.errors import Busy
from dreamkeep.host import Host, lock
from dreamkeep.index.store import JournalPlace, Store
from dreamkeep.journal import parts

T = TypeVar("T")

#: Writers hold a journal's lock for as long as a write takes.
_WAIT_S = 2.0


class JournalState:
    def __init__(self, host: Host, root: str, store: Store | None, *, deep: bool) -> None:
        self.host = host
        self.root = root
        self.store = store
        self.deep = deep
        self.standings = store.standings() if store else []
        self.indexed = {standing[0] for standing in self.standings}
        self.checked = {"journals": 0, "read": 0, "mended": 0, "accepted": 0, "busy": 0}
        #: Deleted sessions and accepted faults, by the keep's own journal.
        self.dead = set(store.tombstones()) if store else set()
        self.accepted = store.accepted() if store else set()
        #: Journals of sessions that are there, and those that can't be read.
        self.present: set[str] = set()
        self.unreadable: set[str] = set()
        #: Folders that could not be listed; each ends with a slash.
        self.unlisted: tuple[str, ...] = ()
        #: Journals with a reported loss, be it accepted.
        self.lossy: set[str] = set()
        #: Of journals that were read: how far their sources were captured, as text, and the last seq.
        self.reached: dict[str, tuple[str, int]] = {}

    def place(self, name: str) -> JournalPlace | None:
        return self.store.place(name) if self.store and name in self.indexed else None

    def under_lock(self, name: str, act: Callable[[], T]) -> T | None:
        """Act while no writer writes; None when a writer holds the lock all the time. Makes no lock file."""
        folder = f"{self.root}/{name}"
        try:
            handle = self.host.open_read(f"{folder}/{parts.LOCK}")
        except FileNotFoundError:
            return act()
        try:
            lock(self.host, handle, where=folder, wait_s=_WAIT_S, shared=True)
            return act()
        except Busy:
            self.checked["busy"] += 1
            return None
        finally:
            self.host.close(handle)
