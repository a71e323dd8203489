"""Put a whole journal from a snapshot where there is none, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from dreamkeep.host import Host, lock, make_folders
from dreamkeep.journal import parts

_WAIT_S = 60.0


def adopt(host: Host, folder: str, staged: Sequence[tuple[int, str]], may_begin: Callable[[], None]) -> bool:
    """`staged`: (part, path of a synced file on the same disk), in order. False when there is a journal already.

    A crash leaves the first parts: a shorter journal without defects, which the next import completes.
    """
    while True:
        make_folders(host, folder)
        guard = host.open_lock(f"{folder}/{parts.LOCK}")
        try:
            lock(host, guard, where=folder, wait_s=_WAIT_S)
            if host.handle_stat(guard).links == 0:
                continue  # it was deleted just now
            if parts.numbers(host, folder):
                return False
            may_begin()
            for part, path in staged:
                host.link(path, f"{folder}/{parts.name(part)}")
                host.sync_folder(folder)
            host.cut(guard, staged[-1][0])
            _sync_above(host, folder)
            return True
        finally:
            host.close(guard)


def _sync_above(host: Host, folder: str) -> None:
    """The process that made these names may have died before making them durable."""
    for _ in range(3):
        folder = os.path.dirname(folder)
        host.sync_folder(folder)
