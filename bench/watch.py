"""How long after an agent wrote something it is seen: a watcher in a process of its own, an agent that writes, somebody who asks.

The clock runs from the agent's write to the answer that shows it, so it holds the telling, reading, journaling (with
its syncs), indexing and asking. Asked every 20 ms.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from bench.side_by_side import Goal, Table, arguments, say, workplace

from dreamkeep import Keep

_GOAL_S = Goal(2.0)
_ASK_S = 0.02


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    count = 5 if given.quick else 25
    with workplace(given.dir) as place:
        table = Table("Watch: seconds from an agent's write to an answer that shows it")
        for what, extra in (("told by the file system", []), ("looking again and again", ["--poll"])):
            say(f"watch: {what}")
            new, more = _measured(f"{place}/{len(extra)}", extra, count)
            for how, times in (("a new session", new), ("more of one", more)):
                slowest = max(times)
                table.fact(f"{how}, {what}: the slowest of {count}", f"{slowest:.2f} s", _GOAL_S, slowest)
                table.fact(f"{how}, {what}: median", f"{median(times):.2f} s")
        table.print()


def _measured(place: str, extra: list[str], count: int) -> tuple[list[float], list[float]]:
    folder = f"{place}/home/.claude/projects/-home-dev-shop"
    os.makedirs(folder)
    words = [sys.executable, "-m", "dreamkeep", "--keep", f"{place}/keep", "watch", "--home", f"{place}/home", *extra]
    watcher = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    new, more = [], []
    try:
        with Keep.open(f"{place}/keep") as keep:
            _write(f"{folder}/first.jsonl", "first", 1)
            _until(partial(_has_sessions, keep, 1))
            time.sleep(1.5)
            for n in range(count):
                path = f"{folder}/s{n}.jsonl"
                began = _write(path, f"s{n}", 1)
                _until(partial(_has_sessions, keep, n + 2))
                new.append(time.monotonic() - began)
                began = _write(path, f"s{n}", 2)
                _until(partial(_has_messages, keep, f"claude:s{n}", 2))
                more.append(time.monotonic() - began)
    finally:
        watcher.terminate()
        watcher.wait()
    return new, more


def _has_sessions(keep: Keep, count: int) -> bool:
    return len(keep.sessions()) == count


def _has_messages(keep: Keep, session: str, count: int) -> bool:
    return keep.summary(session).messages == count


def _write(path: str, session: str, n: int) -> float:
    line = {
        "parentUuid": None,
        "type": "user",
        "message": {"role": "user", "content": f"question {n}"},
        "uuid": f"{session}-{n}",
        "timestamp": f"2026-11-01T10:00:{n:02d}.000Z",
        "sessionId": session,
        "cwd": "/home/dev/shop",
        "isSidechain": False,
    }
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
    return time.monotonic()


def _until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError("it was not seen within a minute")
        time.sleep(_ASK_S)


if __name__ == "__main__":
    main()
