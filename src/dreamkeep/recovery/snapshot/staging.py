"""Where an import lays down what it reads before it is taken over: `state/importing.<chance>.tmp/`. Words lie there for a moment.

One import at a time has it (`state/import.lock`); so whoever gets the lock may sweep what a dead one left.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from dreamkeep.host import Host
from dreamkeep.host import exclusive_lock as host_alone

LOCK = "state/import.lock"
_STATE = "state"
_PREFIX = "importing."


def new_staging(host: Host) -> str:
    """A name of a folder, relative to the keep; an audit knows it as something that may be left over."""
    return f"{_STATE}/{_PREFIX}{host.random(8).hex()}.tmp"


def lock_staging(host: Host, root: str, *, wait_s: float) -> AbstractContextManager[None]:
    return host_alone(host, f"{root}/{LOCK}", wait_s=wait_s)


def sweep(host: Host, root: str) -> None:
    """Under the lock."""
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
