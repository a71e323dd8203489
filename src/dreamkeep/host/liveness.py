"""What belongs to one process: locks that prove that it lives, and state that a forked child must not inherit."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Protocol

from dreamkeep.host import Host


class Forkable(Protocol):
    def after_fork(self) -> None: ...


_forkable: weakref.WeakSet[Forkable] = weakref.WeakSet()


def notice_forks(thing: Forkable) -> None:
    """Call `thing.after_fork()` in every forked child: its locks, handles and random bytes are copies of the parent's."""
    _forkable.add(thing)


def _after_fork_in_child() -> None:
    for thing in list(_forkable):
        thing.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


class HeldLock:
    """A lock file held by this process until `release`. It proves that the process lives, without a clock or a pid."""

    def __init__(self, host: Host, path: str, handle: int) -> None:
        self._host = host
        self.path = path
        self._handle = handle

    def release(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            try:
                self._host.remove(self.path)
            except OSError:
                pass  # closing releases the lock; the next owner sweeps the name
            finally:
                self._host.close(handle)

    def forget(self) -> None:
        """In a forked child: close the copy without ending the parent's ownership."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            self._host.close(handle)


def hold(host: Host, name: Callable[[], str]) -> HeldLock:
    """Create a lock file under a fresh name and lock it. A sweeper in between only costs a retry."""
    while True:
        path = name()
        handle = host.create(path)
        if host.try_lock(handle) and host.handle_stat(handle).links > 0:
            return HeldLock(host, path, handle)
        host.close(handle)


def is_held(host: Host, path: str) -> bool:
    """Whether some process holds that lock file now. Changes nothing on disk."""
    try:
        handle = host.open_read(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: a failure is no proof that the owner is gone
    try:
        # Shared, so that two processes that ask at the same time don't take each other for the owner.
        return not host.try_lock(handle, shared=True)
    finally:
        host.close(handle)


def sweep(host: Host, folder: str) -> None:
    """Remove lock files whose holders are gone."""
    for name in host.names(folder):
        path = f"{folder}/{name}"
        try:
            handle = host.open_read(path)
        except OSError:
            continue  # another sweeper was faster, or we may not read it
        try:
            if host.try_lock(handle):
                host.remove(path)
        except OSError:
            pass  # likewise; or it can't be removed, which does no harm
        finally:
            host.close(handle)
