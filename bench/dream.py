"""Dreaming with `rules`: how many sessions a second, whether memory and time stay flat, and what it costs when nothing is new.

Sessions of 200 messages: prompts, answers, commands that fail and pass, edits; each with a few statements worth keeping. Memory
is that of a process of its own, after a tenth of the sessions and after all. Time is the processor's, for a session: of a tenth
in an empty keep, and of as many more in a keep that has dreamed of all. A dream that finds nothing new is compared with
`status`, as the commands that people type, in turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

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
        spent = _first(few, all_)
        _filled(all_, sessions // 10, after=sessions)
        _later(all_, spent)
        _again(all_, rounds)


def _filled(root: str, sessions: int, after: int = 0) -> None:
    with Keep.open(root, environment={}) as keep:
        for n in range(after, after + sessions):
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
    started, spent = time.perf_counter(), time.process_time()
    made = keep.dream()
    took, spent = time.perf_counter() - started, time.process_time() - spent
print(made["processed"], made["failed"], took, spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Dreamt(NamedTuple):
    sessions: int
    took_s: float
    spent_s: float
    peak_kb: int

    @property
    def each_s(self) -> float:
        return self.spent_s / self.sessions

    def __str__(self) -> str:
        return f"{self.sessions / self.took_s:,.1f} sessions/s, {milliseconds(self.each_s)} each, {self.peak_kb >> 10} MB"


def _dreamt(root: str) -> Dreamt:
    done = subprocess.run([sys.executable, "-c", _CODE, root], capture_output=True, text=True, check=True).stdout.split()
    if int(done[1]):
        raise SystemExit(f"{done[1]} sessions failed")
    return Dreamt(int(done[0]), float(done[2]), float(done[3]), int(done[4]))


def _first(few: str, all_: str) -> Dreamt:
    table = Table("A first dream, with rules")
    tenth, whole = _dreamt(few), _dreamt(all_)
    table.fact(f"a tenth of the sessions: {tenth.sessions:,}", str(tenth))
    table.fact(f"all of them: {whole.sessions:,}", str(whole))
    ratio = _plain(whole.peak_kb, tenth.peak_kb)
    table.line("peak memory of all, against a tenth", f"{whole.peak_kb >> 10} MB", f"{tenth.peak_kb >> 10} MB", ratio, _FLAT)
    table.print()
    return tenth


def _later(root: str, tenth: Dreamt) -> None:
    table = Table("A dream of new sessions, after all the others")
    later = _dreamt(root)
    table.fact(f"{later.sessions:,} more", str(later))
    ratio = _plain(later.each_s, tenth.each_s)
    table.line("time a session, against an empty keep", milliseconds(later.each_s), milliseconds(tenth.each_s), ratio, _FLAT)
    table.print()


def _plain(one: float, other: float) -> Ratio:
    found = one / other
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
