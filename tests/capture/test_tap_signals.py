"""Signals through the tap: to the process, its group, its family and from a terminal; and what is left when it is killed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dreamkeep.capture.tap import guard as tap_guard

SRC = str(Path(tap_guard.__file__).parents[3])
NUMBERS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
#: Counts its signals, whatever they are; at each line it is sent it says how many of each.
COUNTING = """
import os, signal, sys
seen = []
for number in (1, 2, 3, 15, signal.SIGUSR1): signal.signal(number, lambda number, frame: seen.append(number))
{more}
print(os.getpid(), flush=True)
for line in sys.stdin: print(sorted(seen), flush=True)
"""


def counting(more: str = "") -> list[str]:
    return [sys.executable, "-c", COUNTING.format(more=more)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SRC}


class Tapped:
    def __init__(self, root: Path, command: list[str]) -> None:
        words = [sys.executable, "-m", "dreamkeep", "--keep", str(root), "tap", "--", *command]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment(), start_new_session=True, bufsize=0)
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.agent = int(self.stdout.readline())

    def seen(self, count: int) -> list[int]:
        """The signals that the agent got: waits for at least so many, and for any that may follow."""
        wait_until(lambda: len(self._seen()) >= count)
        time.sleep(0.2)
        return self._seen()

    def _seen(self) -> list[int]:
        self.stdin.write(b"\n")
        found: list[int] = json.loads(self.stdout.readline())
        return found


@pytest.fixture
def tapped(tmp_path: Path) -> Iterator[Callable[[list[str]], Tapped]]:
    started: list[Tapped] = []

    def start(command: list[str]) -> Tapped:
        started.append(Tapped(tmp_path / "keep", command))
        return started[-1]

    yield start
    for one in started:
        one.stdin.close()
        for process in {one.process.pid, one.agent}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        one.process.wait()
        one.stdout.close()


def running(process: int) -> bool:
    """A zombie does not count."""
    return state(process) not in ("", "Z")


def state(process: int) -> str:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return found.stdout.strip()[:1]


def family(process: int) -> list[int]:
    """All its descendants, the nearest first."""
    found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    known = [process]
    for one in known:
        known += [pid for pid, parent in pairs if parent == one]
    return known[1:]


def wait_until(true: Callable[[], bool], wait_s: float = 15) -> None:
    until = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_to_the_tap_or_to_its_group_reaches_the_agent_once(
    tapped: Callable[[list[str]], Tapped], number: signal.Signals
) -> None:
    one = tapped(counting())
    os.kill(one.process.pid, number)
    assert one.seen(1) == [number]
    os.killpg(one.process.pid, number)
    assert one.seen(2) == [number] * 2
    for process in [*family(one.process.pid), one.process.pid]:  # as clients do that end a tree, from its leaves on
        os.kill(process, number)
    assert one.seen(3) == [number] * 3
    for process in [one.process.pid, *family(one.process.pid)]:  # or from its root on
        os.kill(process, number)
    assert one.seen(4) == [number] * 4


def test_different_signals_at_the_same_moment_all_reach_the_agent(tapped: Callable[[list[str]], Tapped]) -> None:
    one = tapped(counting())
    os.kill(one.process.pid, signal.SIGHUP)
    os.killpg(one.process.pid, signal.SIGTERM)
    os.kill(one.process.pid, signal.SIGUSR1)
    assert one.seen(3) == sorted([signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1])


@pytest.mark.parametrize("leave", ["os.setpgid(0, 0)", "os.setsid()"])
def test_an_agent_that_left_the_group_still_gets_its_signals(tapped: Callable[[list[str]], Tapped], leave: str) -> None:
    """If its client started it, it would lead its group, and could not leave it."""
    one = tapped(counting(leave))
    os.killpg(one.process.pid, signal.SIGTERM)
    assert one.seen(1) == [signal.SIGTERM]
    os.kill(one.process.pid, signal.SIGINT)
    assert one.seen(2) == [signal.SIGINT, signal.SIGTERM]


def test_without_its_guard_a_tap_still_passes_signals_on(tapped: Callable[[list[str]], Tapped]) -> None:
    one = tapped(counting())
    [guard] = [process for process in family(one.process.pid) if process != one.agent]
    os.kill(guard, signal.SIGKILL)
    os.kill(one.process.pid, signal.SIGTERM)
    assert one.seen(1) == [signal.SIGTERM]


#: What a shell does: a group of its own for the job, which gets the terminal.
SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[3:], process_group=0, stdin=int(sys.argv[1]), stdout=int(sys.argv[2]))
os.tcsetpgrp(0, job.pid)
print(job.pid, flush=True)
os.waitpid(job.pid, 0)
"""


def test_signals_of_a_terminal_reach_the_agent_once_and_stop_and_continue_all(tmp_path: Path) -> None:
    """Ctrl-C, Ctrl-Z and `fg`."""
    (inside, to_agent), (from_agent, outside) = os.pipe(), os.pipe()
    words = [sys.executable, "-m", "dreamkeep", "--keep", str(tmp_path / "keep"), "tap", "--", *counting()]
    shell, terminal = pty.fork()
    if not shell:
        os.set_inheritable(inside, True)
        os.set_inheritable(outside, True)
        os.execve(sys.executable, [sys.executable, "-c", SHELL, str(inside), str(outside), *words], environment())
    os.close(inside)
    os.close(outside)
    with open(from_agent) as heard, open(terminal, "rb", buffering=0, closefd=False) as screen:
        try:
            tap = int(screen.readline())
            agent = int(heard.readline())
            os.write(terminal, b"\x03")
            time.sleep(0.3)
            os.write(to_agent, b"\n")
            assert heard.readline() == f"[{int(signal.SIGINT)}]\n"
            os.write(terminal, b"\x1a")
            wait_until(lambda: state(tap) == state(agent) == "T")
            os.killpg(tap, signal.SIGCONT)
            os.write(to_agent, b"\n")
            assert heard.readline() == f"[{int(signal.SIGINT)}]\n"
        finally:
            os.close(to_agent)  # ends the agent, and so everybody
            os.waitpid(shell, 0)
            os.close(terminal)


# -- which processes are left


def test_killing_the_group_leaves_no_process_behind(tapped: Callable[[list[str]], Tapped]) -> None:
    one = tapped(["sh", "-c", "echo $$; exec sleep 60"])
    processes = [one.process.pid, *family(one.process.pid)]
    assert len(processes) == 3
    os.killpg(one.process.pid, signal.SIGKILL)
    one.process.wait()
    wait_until(lambda: not any(map(running, processes)))


def test_a_killed_tap_ends_its_agent_and_its_guard(tapped: Callable[[list[str]], Tapped]) -> None:
    one = tapped(["sh", "-c", "echo $$; exec sleep 60"])
    processes = family(one.process.pid)
    one.process.kill()
    one.process.wait()
    wait_until(lambda: not any(map(running, processes)))


def test_a_guard_ends_with_its_agent(tapped: Callable[[list[str]], Tapped]) -> None:
    one = tapped(counting())
    processes = family(one.process.pid)
    one.stdin.close()
    assert one.stdout.read() == b""
    assert one.process.wait(20) == 0
    assert not any(map(running, processes))


@pytest.mark.parametrize("by_number", [False, True])
def test_an_agent_that_ignores_sigterm_is_killed(by_number: bool) -> None:
    """With a handle of the process, and without one, as on macOS."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as agent:
        assert agent.stdout and agent.stdout.readline() == b"up\n"
        handle = -1 if by_number or sys.platform != "linux" else os.pidfd_open(agent.pid)
        program = "import sys; from dreamkeep.capture.tap import guard as g; g.GRACE_S = 0.3; g.main(*map(int, sys.argv[1:]))"
        words = [sys.executable, "-c", program, str(agent.pid), str(handle)]
        handles = [handle] if handle >= 0 else []
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment(), pass_fds=handles) as guard:
            assert guard.stdin
            guard.stdin.close()
            assert agent.wait(20) == -signal.SIGKILL
        if handle >= 0:
            os.close(handle)
