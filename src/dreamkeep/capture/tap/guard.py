"""The tap's guard: a small process beside the agent. It is a child of the tap, too, and in the same process group.

    python -I -S guard.py PID HANDLE        the agent; a handle of it (Linux' pidfd) that no other process can inherit, or -1

This file imports nothing of dreamkeep. The guard does two things, both over the pipes that the tap gave it:

- It answers a byte by that byte and 8 more: which signals have reached it since the last question (bit N-1 for signal N). A
  signal that reached the guard was sent to the whole group, or to all children of the tap, so it has reached the agent, too.
- When its stdin ends, the tap is gone, perhaps by kill -9. Then the guard ends the agent: by SIGTERM, and by SIGKILL if that is
  not enough. PR_SET_PDEATHSIG would not do: it must be set between fork and exec, where Python is not safe beside threads; it is
  sent when the *thread* that forked ends; programs with other rights lose it; and macOS does not have it.
"""

import os
import select
import signal
import sys
import time

#: How long an agent may take to end after SIGTERM.
GRACE_S = 5.0
_LOOK_S = 0.05
#: Only SIGKILL and SIGSTOP act on the guard. Not even Ctrl-Z does: the tap may be killed while all are stopped.
BLOCKED = {
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGALRM, signal.SIGWINCH),
}


def main(agent: int, handle: int) -> None:
    # The tap has blocked them before it started us. This is for other callers.
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    try:
        while asked := os.read(0, 1):
            os.write(1, asked + _reached().to_bytes(8, "little"))
    except BrokenPipeError:
        pass  # the tap died before it could read the answer
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            _send(agent, handle, number)
        except (ProcessLookupError, PermissionError):
            return  # it has ended, or this user may not end it
        if _has_ended(agent, handle):
            return


def _reached() -> int:
    found = 0
    for number in signal.sigpending() & BLOCKED:
        signal.sigwait({number})  # removes it, so that the next answer has only newer ones
        found |= 1 << (number - 1)
    return found


def _send(agent: int, handle: int, number: signal.Signals) -> None:
    if handle < 0:
        os.kill(agent, number)
    elif sys.platform == "linux":
        signal.pidfd_send_signal(handle, number)


def _has_ended(agent: int, handle: int) -> bool:
    """Waits for its end for at most GRACE_S."""
    if handle >= 0:
        watched = select.poll()
        watched.register(handle, select.POLLIN)
        return bool(watched.poll(GRACE_S * 1000))
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        try:
            os.kill(agent, 0)
        except OSError:
            return True
        time.sleep(_LOOK_S)  # short, so that meanwhile no other process can have got its number
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
