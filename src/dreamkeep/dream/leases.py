"""Which sessions somebody is reading right now, outside of a run: exported for a batch, or handed to the agent at hand.

A lease ends by itself, so nobody who went away holds a session for ever. The file is a convenience, no truth: without it two may
read the same session, and the guard against doubles keeps one result. It is only touched under the dream's lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dreamkeep.host import make_folders, read_file, replace_file

if TYPE_CHECKING:
    from dreamkeep.host import Host

_FILE = "state/leases.json"
_LARGEST = 16 << 20


class Leases:
    def __init__(self, host: Host, root: str) -> None:
        self._host, self._root = host, root

    def held(self, *, but: str = "") -> frozenset[str]:
        """Sessions that others than `but` hold now."""
        now = self._host.now()
        return frozenset(session for session, (by, until) in self._all().items() if until > now and by != but)

    def take(self, sessions: Iterable[str], by: str, seconds: int) -> None:
        until = self._host.now() + seconds * 1_000_000_000
        self._write({**self._all(), **dict.fromkeys(sessions, (by, until))})

    def release(self, sessions: Iterable[str]) -> None:
        gone, found = set(sessions), self._all()
        if gone & found.keys():
            self._write({session: lease for session, lease in found.items() if session not in gone})

    def _all(self) -> dict[str, tuple[str, int]]:
        path = f"{self._root}/{_FILE}"
        try:
            found = self._host.stat(path)
            told = json.loads(read_file(self._host, path)) if found and 0 < found.size <= _LARGEST else {}
        except (OSError, ValueError, RecursionError):
            return {}  # a lease that can't be read is none
        if not isinstance(told, dict):
            return {}
        return {session: (str(one[0]), int(one[1])) for session, one in told.items() if _is_lease(one)}

    def _write(self, leases: dict[str, tuple[str, int]]) -> None:
        now = self._host.now()
        kept = {session: list(lease) for session, lease in sorted(leases.items()) if lease[1] > now}
        make_folders(self._host, f"{self._root}/state")
        replace_file(self._host, f"{self._root}/{_FILE}", json.dumps(kept).encode())


def _is_lease(one: object) -> bool:
    return isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], int)
