"""Passes signals through the tap, so that the agent gets each of them once, whether it was sent to the tap or to the group.

    to the tap alone (kill PID) ─────────────────► the guard did not get it ──► sent on to the agent
    to the group (kill -PGID, Ctrl-C, hang-up) ──► the guard got it, and so did the agent ──► not sent on

A signal does not say to whom else it was sent, but another member of the group knows (guard.py). The road not taken is a group of
its own for the agent. Then a SIGKILL for the client's group would leave the agent and its children behind, Ctrl-Z would stop only
the tap, and programs below the agent that ask at the terminal (ssh, git) would be stopped for ever. So tap, agent and guard stay
in the client's group, and the terminal stops and continues them together. SIGTSTP to the tap alone stops the tap: then nothing
passes through the agent's pipes.

An agent that has left the group gets all signals from the tap.
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
#: The kernel may not have reached all members of the group yet, and some clients signal a process and its children one by one.
_SETTLE_S = 0.02
#: A guard that takes longer is stopped or gone. Then a signal twice is better than none.
_ANSWER_S = 1.0


class Guard:
    """The guard's process, as the tap sees it. Raises OSError if it can't be started."""

    def __init__(self, agent: int) -> None:
        handle = _handle_of(agent)
        # The guard inherits the blocked signals, so none can end it while it starts.
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
        """The signals that have reached the guard since the last question; none if it does not answer."""
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
    """Sends signals that only the tap got on to the agent. The agent decides what to do; the tap ends when the agent does."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}
        # Python runs handlers in the main thread when that wakes up, and a signal delivered to another thread does not wake it.
        # The numbers of signals are written into this pipe at once, whichever thread got the signal.
        self._arrived, self._wake = os.pipe()
        os.set_blocking(self._arrived, False)
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
        while _readable(self._arrived, None):
            time.sleep(_SETTLE_S)
            reached = guard.reached() if guard and _with_us(process.pid) else set()
            # The guard is asked before the pipe is read: a signal that came twice in this moment counts once for both.
            for number in self._taken():
                if number not in reached:
                    process.send_signal(number)

    def _taken(self) -> list[int]:
        """The signals that came, each once."""
        try:
            return [number for number in dict.fromkeys(os.read(self._arrived, 1 << 16)) if number in _FORWARDED]
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
