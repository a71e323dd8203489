"""What the benches share: run two things in turn, compare their medians, print one table of ratios.

Only ratios count. A machine is fast or slow, busy or idle; whatever it is, it is so for both sides when they take turns
(A, B, A, B, …, and who begins changes from round to round). The absolute medians are printed for information.

`range` is the smallest and the largest ratio over up to ten stretches of the same run: how far the number can be trusted.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dreamkeep.host import RealHost

Act = Callable[[], object]
_STRETCHES = 10


# -- taking turns


def take_turns(sides: Mapping[str, Act], rounds: int, *, warm_up: int = 3, before: Act | None = None) -> dict[str, list[float]]:
    """Seconds of every single call, by side. Who begins moves on by one each round. `before` each call: not measured."""
    names = list(sides)
    times: dict[str, list[float]] = {name: [] for name in names}
    clock = time.perf_counter
    for n in range(-warm_up, rounds):
        first = n % len(names)
        for name in names[first:] + names[:first]:
            act = sides[name]
            if before:
                before()
            began = clock()
            act()
            took = clock() - began
            if n >= 0:
                times[name].append(took)
    return times


class Ratio(NamedTuple):
    """Median over median, and the smallest and largest of the same over stretches of the run."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f}"

    @property
    def range(self) -> str:
        return f"{self.low:.2f} … {self.high:.2f}"


def ratio(ours: Sequence[float], other: Sequence[float]) -> Ratio:
    stretches = min(_STRETCHES, len(ours))
    found = [_middle(a) / _middle(b) for a, b in zip(_cut(ours, stretches), _cut(other, stretches), strict=True)]
    return Ratio(_middle(ours) / _middle(other), min(found), max(found))


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def _cut(values: Sequence[float], pieces: int) -> Iterator[Sequence[float]]:
    for n in range(pieces):
        yield values[n * len(values) // pieces : (n + 1) * len(values) // pieces]


# -- goals and the table


class Goal(NamedTuple):
    """What is aimed at. Whether it was met is computed from the number, nowhere written down."""

    limit: float
    sign: str = "≤"

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"

    def verdict(self, value: float) -> str:
        signs = {"≤": value <= self.limit, "≥": value >= self.limit, "<": value < self.limit, "=": value == self.limit}
        met = signs[self.sign]
        return "met" if met else "missed"


class Table:
    """Lines of `what, median, against, ratio, range, goal, result`, printed as a Markdown table."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[tuple[str, ...]] = []

    def compare(
        self, what: str, ours: Sequence[float], other: Sequence[float], goal: Goal | None = None, *, show: Callable[[float], str]
    ) -> None:
        self.line(what, show(_middle(ours)), show(_middle(other)), ratio(ours, other), goal)

    def line(self, what: str, ours: str, other: str, found: Ratio | None, goal: Goal | None = None) -> None:
        judged = goal.verdict(found.value) if goal and found else "–"
        self._lines.append((what, ours, other, *((str(found), found.range) if found else ("–", "–")), str(goal or "–"), judged))

    def fact(self, what: str, value: str, goal: Goal | None = None, number: float = 0.0) -> None:
        """A number that is not a ratio: memory, syncs, a list of names."""
        self._lines.append((what, value, "–", "–", "–", str(goal or "–"), goal.verdict(number) if goal else "–"))

    def print(self) -> None:
        heads = ("what", "median", "against", "ratio", "range", "goal", "result")
        widths = [max(map(len, column)) for column in zip(heads, *self._lines, strict=True)]
        print(f"\n### {self._title}\n")
        for cells in (heads, tuple("-" * width for width in widths), *self._lines):
            print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |")
        print(flush=True)


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def per_second(rate: float) -> str:
    return f"{rate:,.0f} /s"


# -- the frame around a bench


def arguments(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes: to see that it runs, not to judge")
    parser.add_argument("--dir", default=os.path.dirname(os.path.abspath(__file__)), help="a folder on the disk to measure")
    return parser


@contextmanager
def workplace(parent: str) -> Iterator[str]:
    """A folder on a real disk, gone afterwards."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kind = RealHost().file_system(parent)
    if kind in ("tmpfs", "ramfs"):
        print(f"Note: {kind} is memory, where a sync costs nothing. Name a folder on a disk with --dir.", file=sys.stderr)
    folder = tempfile.mkdtemp(prefix="work-", dir=parent)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {kind or 'unknown'}, load {_load()} before")
    try:
        yield folder
    finally:
        print(f"Load {_load()} after", flush=True)
        shutil.rmtree(folder)


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def say(text: str) -> None:
    """Progress, where it does not get between the tables."""
    print(text, file=sys.stderr, flush=True)
