"""Signals on their way through the tap: the agent gets each one once, whoever it was sent to.

    to the tap alone (kill PID) ─────────────────► the guard has not got it ──► sent on to the agent
    to the group (kill -PGID, Ctrl-C, hang-up) ──► the guard has it, so has the agent ──► not sent on

A signal does not say whom else it was sent to; a member of the same group knows (guard.py). The road not taken is a group of
its own for the agent: then whoever ends the client's group with SIGKILL would leave the agent and all its children behind, Ctrl-Z
would stop the tap only, and what asks at the terminal below the agent (ssh, git) would be stopped for ever. So tap, agent and
guard stay in the client's group, and the terminal stops and continues them together. SIGTSTP to the tap's pid alone stops the
tap: the agent finds its pipes standing still.

An agent that has left the group itself gets everything from us.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time

from dreamkeep.capture.tap import guard as tap_guard

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: The kernel may still be on its way through the group, and some clients end a whole family one by one.
_SETTLE_S = 0.02
#: A guard that takes longer is stopped or gone: then twice is better than never.
_ANSWER_S = 1.0


class Guard:
    """Our end of it. Raises OSError when it can't be started."""

    def __init__(self, agent: int) -> None:
        handle = _handle_of(agent)
        # What is blocked here is blocked there from the first moment on: a guard that is just starting dies of nothing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, tap_guard.BLOCKED)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", tap_guard.__file__, str(agent), str(handle)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it must not hold the client's pipes
                bufsize=0,
                pass_fds=[handle] if handle >= 0 else [],
                cwd="/",
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if handle >= 0:
                os.close(handle)
        assert self._process.stdin and self._process.stdout
        self._ask, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._asked = 0

    def reached(self) -> set[int]:
        """The signals that have reached the guard since it was asked last; none when it does not answer."""
        self._asked = self._asked % 255 + 1
        until = time.monotonic() + _ANSWER_S
        try:
            os.write(self._ask, bytes([self._asked]))
            while _readable(self._answers, until - time.monotonic()) and (answer := os.read(self._answers, 9)):
                if answer[0] == self._asked:  # else one that came too late
                    mask = int.from_bytes(answer[1:], "little")
                    return {number for number in _FORWARDED if mask >> (number - 1) & 1}
        except OSError:
            pass  # it is gone
        return set()

    def end(self) -> None:
        """The agent has ended: nobody is left to guard."""
        self._process.kill()
        self._process.wait()


def _handle_of(agent: int) -> int:
    if sys.platform == "linux":
        try:
            return os.pidfd_open(agent)
        except OSError:
            pass  # an old kernel: then it is known by its number, as elsewhere
    return -1


def _readable(handle: int, wait_s: float | None) -> bool:
    watched = select.poll()
    watched.register(handle, select.POLLIN)
    return bool(watched.poll(None if wait_s is None else max(wait_s, 0) * 1000))


class Signals:
    """What only we are sent goes to the agent; it decides, and we end when it does."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}
        # Python's handlers run in the main thread when it wakes, and a signal that another thread was given does not wake it. The
        # numbers in this pipe are written at once, whoever was given them.
        self._came, self._wake = os.pipe()
        os.set_blocking(self._came, False)
        os.set_blocking(self._wake, False)
        if threading.current_thread() is threading.main_thread():
            self._woken_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
            for number in _FORWARDED:
                if signal.getsignal(number) is not signal.SIG_IGN:  # what is ignored (nohup) the agent inherits as ignored
                    self._before[number] = signal.signal(number, lambda number, frame: None)

    def forward_to(self, process: subprocess.Popen[bytes], guard: Guard | None) -> None:
        for number in self._taken():
            process.send_signal(number)  # it came when there was no agent, and no guard
        threading.Thread(target=self._work, args=(process, guard), name="tap signals", daemon=True).start()

    def _work(self, process: subprocess.Popen[bytes], guard: Guard | None) -> None:
        while _readable(self._came, None):
            time.sleep(_SETTLE_S)
            reached = guard.reached() if guard and _with_us(process.pid) else set()
            # Asked first, then taken: what came twice within this moment was one for the guard, and is one for us.
            for number in self._taken():
                if number not in reached:
                    process.send_signal(number)

    def _taken(self) -> list[int]:
        """What has come, each once."""
        try:
            return [number for number in dict.fromkeys(os.read(self._came, 1 << 16)) if number in _FORWARDED]
        except BlockingIOError:
            return []

    def restore(self) -> None:
        if self._before:
            signal.set_wakeup_fd(self._woken_before)
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave us


def _with_us(agent: int) -> bool:
    try:
        return os.getpgid(agent) == os.getpgrp()
    except ProcessLookupError:
        return True  # nobody is left to send anything to
