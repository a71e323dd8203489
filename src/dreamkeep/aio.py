"""Many files synced at the same time by one thread: Linux' own asynchronous fdatasync. Part of the door to the disk.

Python threads that sync one file each spend more time getting back into the interpreter than the disk needs (measured with 64
threads: docs/decisions/003). The kernel takes a list of files instead and syncs them side by side. Where it can't (another
system, another processor, a sandbox that forbids it) `sync_all` says None, and everybody syncs for himself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Sequence

#: io_setup, io_submit, io_getevents
_NUMBERS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}
_FDATASYNC = 3
_DEPTH = 128


class _Request(ctypes.Structure):
    """struct iocb of linux/aio_abi.h (little endian)."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("operation", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("handle", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("result_handle", ctypes.c_uint32),
    )


class _Result(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class _Queue:
    """One context of the kernel's, used by one thread at a time."""

    def __init__(self) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        setup, self._submit, self._wait = _NUMBERS[os.uname().machine]
        self._context = ctypes.c_ulong(0)
        if self._syscall(ctypes.c_long(setup), ctypes.c_long(_DEPTH), ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self._requests = (_Request * _DEPTH)()
        self._results = (_Result * _DEPTH)()
        self._list = (ctypes.c_void_p * _DEPTH)(*(ctypes.addressof(request) for request in self._requests))
        for n, request in enumerate(self._requests):
            request.operation = _FDATASYNC
            request.data = n

    def sync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        for request, handle in zip(self._requests, handles, strict=False):
            request.handle = handle
        taken = self._syscall(ctypes.c_long(self._submit), self._context, ctypes.c_long(len(handles)), self._list)
        outcome: list[OSError | None] = [OSError(errno.EAGAIN, "not tried")] * len(handles)
        done = 0
        while done < taken:
            left = ctypes.c_long(taken - done)
            count = self._syscall(ctypes.c_long(self._wait), self._context, left, left, self._results, None)
            if count < 0:
                if ctypes.get_errno() == errno.EINTR:
                    continue
                raise OSError(ctypes.get_errno(), "io_getevents")
            for result in self._results[:count]:
                outcome[result.data] = OSError(-result.result, os.strerror(-result.result)) if result.result < 0 else None
            done += count
        return outcome


_mutex = threading.Lock()
_free: list[_Queue] = []
_possible = sys.platform == "linux" and sys.byteorder == "little" and os.uname().machine in _NUMBERS


def sync_all(handles: Sequence[int]) -> list[OSError | None] | None:
    global _possible
    if not _possible:
        return None
    try:
        queue = _take()
    except OSError:
        _possible = False
        return None
    outcome: list[OSError | None] = []
    for start in range(0, len(handles), _DEPTH):
        outcome += queue.sync_all(handles[start : start + _DEPTH])
    # Not given back after an exception: results of one call must never be read by another.
    _free.append(queue)
    return outcome


def _take() -> _Queue:
    with _mutex:
        return _free.pop() if _free else _Queue()


def _after_fork_in_child() -> None:
    """The kernel does not hand contexts on to a forked child, and the mutex may be held by a thread that is not there."""
    global _mutex
    _mutex = threading.Lock()
    _free.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
