"""Take over a whole journal, byte for byte, where there is none: what a snapshot brings back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from dreamkeep.host import Host, lock, make_folders
from dreamkeep.journal import parts

_WAIT_S = 60.0


def adopt(host: Host, folder: str, staged: Sequence[tuple[int, str]], may_begin: Callable[[], None]) -> bool:
    """`staged`: (part, path of a synced file on the same disk), in order. False when a journal is there already.

    A crash leaves the first parts: a shorter journal, whole in itself, which the next import goes on with.
    """
    while True:
        make_folders(host, folder)
        guard = host.open_lock(f"{folder}/{parts.LOCK}")
        try:
            lock(host, guard, where=folder, wait_s=_WAIT_S)
            if host.handle_stat(guard).links == 0:
                continue  # somebody deleted it just now
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
    """Whoever made these names may have died before making them durable."""
    for _ in range(3):
        folder = os.path.dirname(folder)
        host.sync_folder(folder)
