"""Where an import writes journals before they are merged: `state/importing.<random>.tmp/`. Sessions' words are there for a
moment.

One import runs at a time (`state/import.lock`), so the holder of the lock may remove what a dead import left.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from dreamkeep.host import Host, exclusive_lock

LOCK = "state/import.lock"
_STATE = "state"
_PREFIX = "importing."


def new_staging(host: Host) -> str:
    """The name of a new folder, relative to the keep. An audit recognises it as a possible leftover."""
    return f"{_STATE}/{_PREFIX}{host.random(8).hex()}.tmp"


def lock_staging(host: Host, root: str, *, wait_s: float) -> AbstractContextManager[None]:
    return exclusive_lock(host, f"{root}/{LOCK}", wait_s=wait_s)


def sweep(host: Host, root: str) -> None:
    """Call this under the lock."""
    for name in _names(host, f"{root}/{_STATE}"):
        if name.startswith(_PREFIX):
            clear(host, f"{root}/{_STATE}/{name}")


def clear(host: Host, folder: str) -> None:
    names = _names(host, folder)
    for name in names:
        host.remove(f"{folder}/{name}")
    if names or host.stat(folder) is not None:
        host.remove_folder(folder)


def _names(host: Host, folder: str) -> list[str]:
    try:
        return host.names(folder)
    except FileNotFoundError:
        return []
