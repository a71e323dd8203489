"""Part of the door: runs another program with an input, and returns its output.

It runs in a process group of its own. The whole group is killed when its time is over, when its output is too long, and also
when it has ended and left children behind. (A child that starts its own session escapes; nothing portable prevents that. It
can't block us either: we don't wait for processes that still hold our pipe.)
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

_PIECE = 1 << 16
#: How long pipes are read after the program ended: its children may still hold them.
_AFTER_S = 0.5
_GRACE_S = 0.5
_ERRORS = 4096


class ProcessResult(NamedTuple):
    """`why` is "" if the program ended by itself, or else "time-out" or "too long". `errors`: the end of stderr."""

    code: int
    out: bytes
    errors: bytes
    why: str = ""


class NotStarted(NamedTuple):
    detail: str


def run(
    words: Sequence[str], said: bytes, *, environment: Mapping[str, str], folder: str, timeout_s: float, most_bytes: int
) -> ProcessResult | NotStarted:
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            list(words), stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environment), cwd=folder, start_new_session=True
        )
    except OSError as problem:
        return NotStarted(problem.strerror or type(problem).__name__)
    try:
        talk = _Talk(process, said, most_bytes)
        why = talk.until(time.monotonic() + timeout_s)
    finally:
        _end(process)
    return ProcessResult(process.returncode, bytes(talk.out), bytes(talk.errors), why)


class _Talk:
    """Writes and reads whenever a pipe is ready, so that neither side waits for the other for ever."""

    def __init__(self, process: subprocess.Popen[bytes], said: bytes, most: int) -> None:
        self._process, self._left, self._most = process, memoryview(said), most
        self.out, self.errors = bytearray(), bytearray()
        self._ready = selectors.DefaultSelector()
        for stream, mask in ((process.stdin, selectors.EVENT_WRITE), (process.stdout, selectors.EVENT_READ)):
            self._add(stream, mask)
        self._add(process.stderr, selectors.EVENT_READ)

    def _add(self, stream: IO[bytes] | None, mask: int) -> None:
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        self._ready.register(stream, mask)

    def until(self, deadline: float) -> str:
        ended: float | None = None
        try:
            while len(self._ready.get_map()) > 0:
                now = time.monotonic()
                if now >= deadline:
                    return "time-out"
                if ended is None and _has_ended(self._process):
                    ended = now
                if ended is not None and now >= ended + _AFTER_S:
                    return ""
                for key, _ in self._ready.select(min(0.1, deadline - now)):
                    self._step(key.fileobj)
                if len(self.out) > self._most:
                    return "too long"
            while not _has_ended(self._process):  # it closed its pipes but still runs
                if time.monotonic() >= deadline:
                    return "time-out"
                time.sleep(0.01)
            return ""
        finally:
            self._ready.close()

    def _step(self, stream: object) -> None:
        if stream is self._process.stdin:
            self._write()
        elif stream is self._process.stdout:
            self.out += self._read(self._process.stdout)
        else:
            self.errors += self._read(self._process.stderr)
            del self.errors[:-_ERRORS]

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            self._left = self._left[os.write(stream.fileno(), self._left[:_PIECE]) :] if self._left else self._left
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]  # it reads no more, but may still answer
        if not self._left:
            self._ready.unregister(stream)
            stream.close()

    def _read(self, stream: IO[bytes] | None) -> bytes:
        assert stream is not None
        try:
            piece = os.read(stream.fileno(), _PIECE)
        except BlockingIOError:
            return b""
        if not piece:
            self._ready.unregister(stream)
        return piece


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    # Without reaping it: its pid must not be reused before the group is killed.
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break  # nobody is left (macOS reports a group of zombies so)
        until = time.monotonic() + _GRACE_S
        while number == signal.SIGTERM and not _has_ended(process) and time.monotonic() < until:
            time.sleep(0.01)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass  # unread input
