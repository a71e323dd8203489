"""The tap's guard: a small process that sits where the agent sits, as a child of the tap and a member of its process group.

    python -I -S guard.py PID HANDLE        the agent; a handle of it (Linux' pidfd) that no other process can inherit, or -1

Stands by itself: loads nothing of ours. It does two things, both over the pipes that the tap gave it:

- Asked by a byte, it answers that byte and 8 more: which signals have reached it since it was asked last (bit N-1 for signal N).
  What reached the guard without the tap (the whole group, or the tap's whole family) has reached the agent, too.
- At the end of its stdin the tap is gone, however that came about (kill -9). Then the agent is ended: SIGTERM, and SIGKILL when
  that is not enough. Not by PR_SET_PDEATHSIG: that must be asked for between fork and exec, where Python is not safe beside
  threads; it comes when the *thread* that forked ends; programs with other rights lose it; macOS has none. This works on both.
"""

import os
import select
import signal
import sys
import time

#: How long an agent may take to end, until it is ended.
GRACE_S = 5.0
_LOOK_S = 0.05
#: Nothing but SIGKILL and SIGSTOP acts on the guard: not even Ctrl-Z, or it could not do its work when the tap is killed then.
BLOCKED = {
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGALRM, signal.SIGWINCH),
}


def main(agent: int, handle: int) -> None:
    # The tap has blocked them already, from our first moment on; this is for who starts us otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    try:
        while asked := os.read(0, 1):
            os.write(1, asked + _reached().to_bytes(8, "little"))
    except BrokenPipeError:
        pass  # asked, and died before it could hear the answer
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            _send(agent, handle, number)
        except (ProcessLookupError, PermissionError):
            return  # it has ended, or is not ours to end
        if _has_ended(agent, handle):
            return


def _reached() -> int:
    found = 0
    for number in signal.sigpending() & BLOCKED:
        signal.sigwait({number})  # taken: next time only what came since
        found |= 1 << (number - 1)
    return found


def _send(agent: int, handle: int, number: signal.Signals) -> None:
    if handle < 0:
        os.kill(agent, number)
    elif sys.platform == "linux":
        signal.pidfd_send_signal(handle, number)


def _has_ended(agent: int, handle: int) -> bool:
    """Within the time it has for that."""
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
        time.sleep(_LOOK_S)  # so often that its number can't have become another process's meanwhile
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
