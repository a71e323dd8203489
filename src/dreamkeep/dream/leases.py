"""Leases of sessions that are being read outside of a run: exported for a batch, or handed to the agent at hand.

A lease expires, so an abandoned export does not hold a session for ever. The file may be lost: then two may read the same
session, and the guard against duplicates keeps one result. Whoever chooses sessions and takes leases holds the dream's lock; the
file has a lock of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dreamkeep.host import exclusive_lock, read_file, replace_file

if TYPE_CHECKING:
    from dreamkeep.host import Host

_FILE, _LOCK = "state/leases.json", "state/leases.lock"
_LARGEST = 16 << 20
_WAIT_S = 10.0


class Leases:
    def __init__(self, host: Host, root: str) -> None:
        self._host, self._root = host, root

    def held_sessions(self, *, but: str = "") -> frozenset[str]:
        """Sessions that others than `but` hold now."""
        now = self._host.now()
        return frozenset(session for session, (by, until) in self._all().items() if until > now and by != but)

    def holders(self) -> frozenset[str]:
        now = self._host.now()
        return frozenset(by for by, until in self._all().values() if until > now)

    def take(self, sessions: Iterable[str], by: str, seconds: int) -> None:
        """`by` holds exactly these from now on."""
        with exclusive_lock(self._host, f"{self._root}/{_LOCK}", wait_s=_WAIT_S):
            until = self._host.now() + seconds * 1_000_000_000
            others = {session: lease for session, lease in self._all().items() if lease[0] != by}
            self._write({**others, **dict.fromkeys(sessions, (by, until))})

    def release(self, by: str) -> None:
        self.take((), by, 0)

    def _all(self) -> dict[str, tuple[str, int]]:
        path = f"{self._root}/{_FILE}"
        try:
            found = self._host.stat(path)
            leases = json.loads(read_file(self._host, path)) if found and 0 < found.size <= _LARGEST else {}
        except (OSError, ValueError, RecursionError):
            return {}  # a lease that can't be read does not count
        if not isinstance(leases, dict):
            return {}
        return {session: (str(one[0]), int(one[1])) for session, one in leases.items() if _is_lease(one)}

    def _write(self, leases: dict[str, tuple[str, int]]) -> None:
        now = self._host.now()
        kept = {session: list(lease) for session, lease in sorted(leases.items()) if lease[1] > now}
        replace_file(self._host, f"{self._root}/{_FILE}", json.dumps(kept).encode())


def _is_lease(one: object) -> bool:
    return isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], int)
