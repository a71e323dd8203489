"""Dreaming with `rules`: how many sessions a second, whether memory stays flat, and what it costs when nothing is new.

Sessions of 200 messages: prompts, answers, commands that fail and pass, edits; each with a few statements worth keeping. Memory
is that of a process of its own, after a tenth of the sessions and after all. A dream that finds nothing new is compared with
`status`, as the commands that people type, in turns.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench.side_by_side import Act, Goal, Ratio, Table, arguments, milliseconds, say, take_turns, workplace

from dreamkeep import Keep

_NOTHING_NEW = Goal(2)
_FLAT = Goal(1.5)
_TURNS = 25
_SAID = (
    "Please look at module {n}: the {n}th test is slow.",
    "We never use floats for prices in service {n}.",
    "No, not sqlite for cache {n}: use redis there, ops runs it already.",
    "Let's go with plan {n}, the other one needs a migration.",
    "thanks!",
    "What does function {n} do?",
)


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    sessions, rounds = (60, 3) if given.quick else (1_000, 7)
    with workplace(given.dir) as place:
        few, all_ = f"{place}/few", f"{place}/all"
        say(f"dream: {sessions:,} sessions of {_TURNS * 8} messages")
        _filled(few, sessions // 10)
        _filled(all_, sessions)
        _first(few, all_)
        _again(all_, rounds)


def _filled(root: str, sessions: int) -> None:
    with Keep.open(root, environment={}) as keep:
        for n in range(sessions):
            session = keep.session(f"s{n}", cwd=f"/work/project-{n % 7}")
            for turn in range(_TURNS):
                session.record(_SAID[turn % len(_SAID)].format(n=n % 40), *_worked(turn))
            session.end()
        keep.catch_up()


def _worked(turn: int) -> list[tuple[str, str]]:
    return [
        ("assistant", f"I look at it. Step {turn}: the module has three functions and a test."),
        ("tool", "collected 41 items, 1 failed"),
        ("assistant", "The test compares a float; I change it."),
        ("tool", "edited"),
        ("assistant", "Now the tests again."),
        ("tool", "41 passed"),
        ("assistant", "All of them pass now."),
    ]


_CODE = """
import resource, sys, time
from dreamkeep import Keep
with Keep.open(sys.argv[1], environment={}) as keep:
    started = time.perf_counter()
    made = keep.dream()
    took = time.perf_counter() - started
print(made["processed"], made["failed"], took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _first(few: str, all_: str) -> None:
    table = Table("A first dream, with rules")
    peaks = []
    for what, root in (("a tenth of the sessions", few), ("all of them", all_)):
        done = subprocess.run([sys.executable, "-c", _CODE, root], capture_output=True, text=True, check=True).stdout.split()
        processed, failed, took, peak = int(done[0]), int(done[1]), float(done[2]), int(done[3])
        if failed:
            raise SystemExit(f"{failed} sessions failed")
        peaks.append(peak)
        table.fact(f"{what}: {processed:,}", f"{processed / took:,.1f} sessions/s, {peak >> 10} MB")
    table.line("peak memory of all, against a tenth", f"{peaks[1] >> 10} MB", f"{peaks[0] >> 10} MB", _plain(peaks), _FLAT)
    table.print()


def _plain(peaks: list[int]) -> Ratio:
    found = peaks[1] / peaks[0]
    return Ratio(found, found, found)


def _again(root: str, rounds: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def command(verb: str) -> Act:
        words = [sys.executable, "-m", "dreamkeep", "--keep", root, verb]
        return lambda: subprocess.run(words, capture_output=True, check=True, env=environment)

    times = take_turns({"status": command("status"), "dream": command("dream")}, rounds)
    table = Table("A dream that finds nothing new")
    table.compare("dreamkeep dream, against dreamkeep status", times["dream"], times["status"], _NOTHING_NEW, show=milliseconds)
    table.print()


if __name__ == "__main__":
    main()
