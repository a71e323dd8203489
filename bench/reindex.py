"""What rebuilding and following the index costs: linear in the events, flat in what was indexed before, bounded in memory.

Compared with itself at another size, so it is fair by nature: a small keep and one ten times as large take turns, and the time
per event is compared. Messages are about 500 bytes of words. The million runs in a process of its own, which then tells its
highest use of memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time

from bench.sessions import fill, open_turn, texts_of
from bench.side_by_side import Act, Goal, Table, arguments, microseconds, milliseconds, say, take_turns, workplace

from dreamkeep import Keep

_LINEAR = Goal(2)
_MEMORY_MB = Goal(300, "<")
_NEW = 100


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--million", action="store_true", help="index 1,000,000 events too (always, unless --quick)")
    parser.add_argument("--peak-of", metavar="KEEP", help="only index this keep from zero and tell time and memory as JSON")
    given = parser.parse_args()
    if given.peak_of:
        print(json.dumps(_reindex_and_tell(given.peak_of)))
        return
    rounds = 3 if given.quick else 11
    with workplace(given.dir) as place:
        table = Table("Index: time per event at another size, and memory")
        _linear(table, place, rounds)
        _follow(table, place, rounds=8 if given.quick else 41)
        if given.million or not given.quick:
            _million(table, f"{place}/million")
        table.print()


# -- from zero


def _linear(table: Table, place: str, rounds: int) -> None:
    for what, each in (("one session", 0), ("sessions of 200 events", 200)):
        say(f"reindex: 2,000 and 20,000 events, {what}")
        small, large = (_built(f"{place}/zero-{events}-{each}", events, each or events) for events in (2_000, 20_000))
        times = take_turns({"small": _from_zero(small), "large": _from_zero(large)}, rounds, warm_up=1)
        at_large, at_small = ([took / 20_000 for took in times["large"]], [took / 2_000 for took in times["small"]])
        table.compare(f"from zero, {what}: per event at 20,000 against 2,000", at_large, at_small, _LINEAR, show=microseconds)


def _built(root: str, events: int, each: int) -> str:
    text = texts_of(500)
    with Keep.open(root) as keep:
        for n in range(events // each):
            open_turn(keep, f"s{n}")
            fill(root, f"s{n}", each - 2, text)
    return root


def _from_zero(root: str) -> Act:
    def reindex() -> None:
        with Keep.open(root) as keep:
            keep.reindex(from_zero=True)

    return reindex


# -- following


def _follow(table: Table, place: str, rounds: int) -> None:
    say(f"reindex: following {_NEW} new events")
    times: dict[str, list[float]] = {"small": [], "large": []}
    roots = {"small": f"{place}/zero-2000-2000", "large": f"{place}/zero-20000-20000"}
    text = texts_of(500)
    for n in range(-1, rounds):
        for root in roots.values():
            fill(root, "s0", _NEW, text)
        for side in ("small", "large") if n % 2 else ("large", "small"):
            took = _time_to_follow(roots[side])
            if n >= 0:
                times[side].append(took)
    table.compare(f"following {_NEW} new events, after 20,000 against 2,000", times["large"], times["small"], show=milliseconds)


def _time_to_follow(root: str) -> float:
    began = time.perf_counter()
    with Keep.open(root) as keep:
        found = keep.reindex().events
    took = time.perf_counter() - began
    if found != _NEW:
        raise SystemExit(f"{found} events were followed, not {_NEW}")
    return took


# -- a million


def _million(table: Table, root: str) -> None:
    say("reindex: building 1,000,000 events (ten sessions)")
    _built(root, 1_000_000, 100_000)
    say("reindex: indexing them")
    command = [sys.executable, "-m", "bench.reindex", "--peak-of", root]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    rate = told["events"] / told["seconds"]
    table.fact(f"from zero, {told['events']:,} events: time", f"{told['seconds']:,.0f} s ({rate:,.0f} events/s)")
    table.fact("their journal and index on disk", f"{_size_mb(root):,.0f} MB")
    table.fact("highest memory (RSS) in MB", f"{told['peak_mb']:.0f} MB", _MEMORY_MB, told["peak_mb"])


def _reindex_and_tell(root: str) -> dict[str, float]:
    began = time.perf_counter()
    with Keep.open(root) as keep:
        found = keep.reindex(from_zero=True)
    return {"events": found.events, "seconds": time.perf_counter() - began, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Linux hands a parent's peak on to the child in getrusage; /proc tells our own, so that one is asked first."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            peak_kb = next(line.split()[1] for line in status if line.startswith("VmHWM"))
        return int(peak_kb) / 1024
    except FileNotFoundError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _size_mb(root: str) -> float:
    return sum(os.path.getsize(f"{at}/{name}") for at, _, names in os.walk(root) for name in names) / (1 << 20)


if __name__ == "__main__":
    main()
