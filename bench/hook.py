"""What a hook costs the agent, against `python -I -S -c pass`: CPU time and wall time of whole processes.

Fair, because both are the same interpreter with the same switches, started the same way, with the same payload on stdin, in turn;
the hook's two syncs are in its times. CPU time is what the operating system counted for that process (and a shell around it). The
drainer that `Stop` starts is no part of the hook: it is waited for between the rounds, so that it takes no time from the others.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Sequence

from bench.side_by_side import Act, Goal, Table, arguments, milliseconds, say, take_turns, workplace

from dreamkeep.capture import hook
from dreamkeep.capture.hooks import spool
from dreamkeep.journal.places import folder_of

_GOAL = Goal(1.5)
_PACK_GOAL = Goal(8)
_FLAT_GOAL = Goal(1.1)
_SET_CHILD_SUBREAPER = 36
_PYTHON = [sys.executable, "-I", "-S"]
_PAYLOAD = json.dumps(
    {
        "session_id": "11111111-1111-4111-8111-111111111111",
        "transcript_path": "/home/dev/.claude/projects/-home-dev-work/11111111-1111-4111-8111-111111111111.jsonl",
        "cwd": "/home/dev/work",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make test"},
        "tool_response": {"stdout": "passed\n" * 400, "stderr": ""},
        "tool_use_id": "toolu_1",
    }
).encode()


class Side:
    """One command, started again and again: its CPU time is kept beside the wall time that the rounds take."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self.cpu: list[float] = []

    def start(self) -> None:
        ours, its = os.pipe()
        child = os.posix_spawn(
            self._command[0],
            self._command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, ours, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
        os.close(ours)
        os.write(its, _PAYLOAD)
        os.close(its)
        _, status, used = os.wait4(child, 0)
        if status:
            raise SystemExit(f"hook: {' '.join(self._command)} ended with {status}")
        self.cpu.append(used.ru_utime + used.ru_stime)


class Settling:
    """A turn in the rounds that is compared with nothing: waits until every drainer has ended."""

    def start(self) -> None:
        while True:
            try:
                os.wait()
            except ChildProcessError:
                return


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    rounds = 10 if given.quick else 150
    with workplace(given.dir) as place:
        small, large = f"{place}/small", f"{place}/large"
        many = 200 if given.quick else 10_000
        say(f"hook: making a keep of {many:,} sessions, with as many calls in its spool")
        os.makedirs(f"{small}/spool")
        _fill(large, many)
        sides = _sides(small, large, f"{place}/packed", adopts=_adopt_orphans())
        say("hook: starting processes")
        acts: dict[str, Act] = {name: side.start for name, side in sides.items()}
        acts["settling"] = Settling().start
        wall = take_turns(acts, rounds)
        cpu = {name: side.cpu[-rounds:] for name, side in sides.items()}
        for what, times in (("wall time", wall), ("CPU time", cpu)):
            _table(f"A hook call, durable, against `python -I -S -c pass`: {what}", times, sides, many).print()


_NOTHING = "python -I -S -c pass"
_SMALL, _LARGE, _STOP = "a hook, empty keep", "a hook, large keep", "Stop: starts the drainer"
_SHELL, _PACKED = "a hook as settings have it, through a shell", "SessionStart: answers with a pack of 8 KB"


def _sides(small: str, large: str, packed: str, *, adopts: bool) -> dict[str, Side]:
    os.makedirs(f"{packed}/state/packs")
    _write(f"{packed}/state/packs/index", "/home/dev\tone.md\n")
    _write(f"{packed}/state/packs/one.md", "We use tabs. “Why” is asked first.\n" * 230)
    shell = spool.hook_command(sys.executable, hook.__file__, "claude", "PostToolUse", small)
    sides = {
        _NOTHING: Side([*_PYTHON, "-c", "pass"]),
        _SMALL: Side([*_PYTHON, hook.__file__, "claude", "PostToolUse", small]),
        _LARGE: Side([*_PYTHON, hook.__file__, "claude", "PostToolUse", large]),
        _SHELL: Side(["/bin/sh", "-c", shell]),
        _PACKED: Side([*_PYTHON, hook.__file__, "claude", "SessionStart", packed]),
    }
    if adopts:
        sides[_STOP] = Side([*_PYTHON, hook.__file__, "claude", "Stop", small])
    return sides


def _table(title: str, times: dict[str, list[float]], sides: dict[str, Side], many: int) -> Table:
    table = Table(title)
    for name in list(sides)[1:]:
        goal = _PACK_GOAL if name == _PACKED else _GOAL
        shown = f"a hook, {many:,} sessions and waiting calls" if name == _LARGE else name
        table.compare(shown, times[name], times[_NOTHING], goal, show=milliseconds)
    table.compare("the large keep against the empty one", times[_LARGE], times[_SMALL], _FLAT_GOAL, show=milliseconds)
    return table


def _fill(keep: str, many: int) -> None:
    os.makedirs(f"{keep}/spool")
    for n in range(many):
        folder = f"{keep}/{folder_of(f'claude:session-{n}')}"
        os.makedirs(folder)
        _write(f"{folder}/000001.jsonl", "{}\n")
        _write(f"{keep}/spool/{time.time_ns():020d}-{n}-{n:016x}~claude~Stop.hook", "{}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _adopt_orphans() -> bool:
    """On Linux a process may ask to get the orphans below it, and so can wait for them."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


if __name__ == "__main__":
    main()
