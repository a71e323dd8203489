"""What a durable append costs, against a bare loop of write+fsync.

Fair, because the bare loop writes exactly the bytes that our frame has (a line is read back from the part) and syncs as often as
we do (counted). It does nothing else: no numbering, no checksum, no lock, no second thought. Single operations take turns (ours,
the loop's, ours, …), and their medians are compared.

We sync with fdatasync; the loop is run with fsync, too. On a file that grows the two cost about the same.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from itertools import cycle

from bench.rivals import all_rivals
from bench.sessions import fill, folder, last_line, open_turn, part_files, raw_files, text_of, texts_of
from bench.side_by_side import Act, Goal, Table, arguments, microseconds, per_second, say, take_turns, workplace

from dreamkeep import Keep
from dreamkeep.capture.python import Turn
from dreamkeep.host import RealHost

_GOAL = Goal(1.3)
_THREADS_GOAL = Goal(0.7, "≥")
_BODIES = {"2 KB": 2_048, "4 KB": 4_096}


class CountingHost(RealHost):
    """The machine we run on; it counts how often a file was synced."""

    syncs = 0

    def sync(self, handle: int) -> None:
        self.syncs += 1
        super().sync(handle)


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    _allow_many_files()
    with workplace(given.dir) as place:
        rounds = 60 if given.quick else 600
        _by_length(place, rounds, (10, 1_000, 10_000 if given.quick else 100_000))
        _by_sessions(place, rounds, 100 if given.quick else 1_000)
        _whole_turn(place, rounds)
        _threads(place, pairs=3 if given.quick else 15, seconds=0.15 if given.quick else 0.4)
        _rivals(place, rounds)


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))


# -- by length of the session


def _by_length(place: str, rounds: int, lengths: Sequence[int]) -> None:
    table = Table("A durable append (`Turn.add`), by events already in the session")
    for events in lengths:
        say(f"append: a session of {events:,} events")
        # A short session must not grow long while it is measured: each takes few appends, then comes the next.
        each = max(10, events // 4)
        for label, size in _BODIES.items():
            root = f"{place}/length-{events}-{size}"
            with Keep.open(root) as keep:
                contests = _contests(keep, root, events, count=-(-rounds // each), text=text_of(size))
                _measure(table, f"{label}, {events:,} events", contests, rounds, each)
    table.print()


#: Our append, and the loop with fsync and with fdatasync, each over a file of its own.
Contest = tuple[Act, Act, Act]


def _contests(keep: Keep, root: str, events: int, *, count: int, text: str) -> list[Contest]:
    """As many sessions of that length, each with files for the loop."""
    found = []
    stock = texts_of(2_048)
    handles = raw_files(f"{root}/raw", 2 * count)
    for n in range(count):
        name = f"s{n}"
        session, _ = open_turn(keep, name)
        fill(root, name, max(0, events - 4), stock)
        turn = session.submit("go on")
        turn.add("assistant", text)
        line = last_line(folder(root, session))
        found.append((_adding(turn, text), _raw(next(handles), line), _raw(next(handles), line, os.fdatasync)))
    return found


def _adding(turn: Turn, text: str) -> Act:
    add = turn.add
    return lambda: add("assistant", text)


def _raw(handle: int, line: bytes, sync: Callable[[int], object] = os.fsync) -> Act:
    def write_and_sync() -> None:
        os.write(handle, line)
        sync(handle)

    return write_and_sync


def _measure(table: Table, what: str, contests: list[Contest], rounds: int, each: int) -> None:
    times: dict[str, list[float]] = {"ours": [], "fsync": [], "fdatasync": []}
    for contest in contests:
        left = min(each, rounds - len(times["ours"]))
        for name, took in take_turns(dict(zip(times, contest, strict=True)), left, warm_up=1).items():
            times[name] += took
    table.compare(f"{what}, write+fsync", times["ours"], times["fsync"], _GOAL, show=microseconds)
    table.compare(f"{what}, write+fdatasync", times["ours"], times["fdatasync"], show=microseconds)


# -- by number of sessions


def _by_sessions(place: str, rounds: int, many: int) -> None:
    say(f"append: 1 and {many:,} open sessions")
    table = Table(f"A durable append of 2 KB, round-robin over open sessions (against {many:,} raw files that stay open)")
    text = text_of(2_048)
    with Keep.open(f"{place}/one") as one, Keep.open(f"{place}/many") as all_of_them:
        sides = {
            "ours, 1": _round_robin(_ours(one, 1, text)),
            "raw, 1": _round_robin(_raws(f"{place}/raw-one", 1, _line_of(one, text))),
            "ours, many": _round_robin(_ours(all_of_them, many, text)),
            "raw, many": _round_robin(_raws(f"{place}/raw-many", many, _line_of(one, text))),
        }
        # Once around before it counts: a file's first append is another thing than those that follow.
        times = take_turns(sides, max(rounds, many), warm_up=many)
    table.compare("1 session", times["ours, 1"], times["raw, 1"], _GOAL, show=microseconds)
    table.compare(f"{many:,} sessions", times["ours, many"], times["raw, many"], _GOAL, show=microseconds)
    table.compare(f"ours: {many:,} sessions against 1", times["ours, many"], times["ours, 1"], show=microseconds)
    table.compare(f"raw: {many:,} files against 1", times["raw, many"], times["raw, 1"], show=microseconds)
    table.print()


def _ours(keep: Keep, count: int, text: str) -> list[Act]:
    return [_adding(open_turn(keep, f"s{n}")[1], text) for n in range(count)]


def _raws(parent: str, count: int, line: bytes) -> list[Act]:
    return [_raw(handle, line) for handle in raw_files(parent, count)]


def _line_of(keep: Keep, text: str) -> bytes:
    session, turn = open_turn(keep, "line")
    turn.add("assistant", text)
    return last_line(folder(keep.root, session))


def _round_robin(acts: Sequence[Act]) -> Act:
    following = cycle(acts)
    return lambda: next(following)()


# -- a whole turn in one call


def _whole_turn(place: str, rounds: int) -> None:
    say("append: whole turns")
    table = Table("A whole turn in one call (`Session.record`, 2 KB prompt + 4 KB answer), against one write+fsync")
    host = CountingHost()
    prompt, answer = text_of(2_048), text_of(4_096)
    with Keep.open(f"{place}/whole", host=host) as keep:
        session = keep.session("whole")
        session.record(prompt, ("assistant", answer))
        journal = folder(keep.root, session)
        (handle,) = raw_files(f"{place}/raw-whole", 1)
        sides: dict[str, Act] = {
            "ours": lambda: session.record(prompt, ("assistant", answer)),
            "raw": _raw(handle, last_line(journal)),
        }
        parts_before, before = len(part_files(journal)), host.syncs
        times = take_turns(sides, rounds, warm_up=0)
        opened, counted = len(part_files(journal)) - parts_before, host.syncs - before
    # A new part is begun with one sync, and the witness told with another (the first time, which makes it, with a third): once in
    # megabytes, not per turn.
    syncs = (counted - 2 * opened - (opened > 0)) / rounds
    table.compare("a whole turn", times["ours"], times["raw"], _GOAL, show=microseconds)
    table.fact(f"syncs per turn ({opened} new parts apart)", f"{syncs:.3f}", Goal(1, "="), syncs)
    table.print()


# -- many threads


def _threads(place: str, *, pairs: int, seconds: float) -> None:
    table = Table("Appends per second of 2 KB by many threads, against as many raw threads (more is better)")
    for threads in (8, 64):
        say(f"append: {threads} threads")
        what = f"{threads} threads, a session each"
        goal = _THREADS_GOAL if threads == 64 else None
        _compare_threads(table, what, place, (threads, threads), pairs, seconds, goal)
    say("append: 64 threads on one session")
    _compare_threads(table, "64 threads on one session, one raw file", place, (64, 1), pairs, seconds, None)
    table.print()


def _compare_threads(
    table: Table, what: str, place: str, shape: tuple[int, int], pairs: int, seconds: float, goal: Goal | None
) -> None:
    threads, sessions = shape
    text = text_of(2_048)
    base = f"{place}/threads-{threads}-{sessions}"
    with Keep.open(f"{base}/keep") as keep:
        line = _line_of(keep, text)
        sides = {
            "ours": _ours(keep, sessions, text) * (threads // sessions),
            "fsync": _raws(f"{base}/raw", sessions, line) * (threads // sessions),
            "fdatasync": [_raw(h, line, os.fdatasync) for h in raw_files(f"{base}/raw-data", sessions)] * (threads // sessions),
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for n in range(-1, pairs):
            for name in (*sides,) if n % 2 else reversed((*sides,)):
                rate = _rate(sides[name], seconds)
                if n >= 0:
                    rates[name].append(rate)
    table.compare(f"{what}, write+fsync", rates["ours"], rates["fsync"], goal, show=per_second)
    table.compare(f"{what}, write+fdatasync", rates["ours"], rates["fdatasync"], show=per_second)


def _rate(acts: Sequence[Act], seconds: float) -> float:
    """Operations per second of one thread per act, all begun together and each going on until time is up."""
    start = threading.Barrier(len(acts) + 1)
    over = threading.Event()
    done = [0] * len(acts)

    def work(me: int) -> None:
        act, stop = acts[me], over.is_set
        start.wait()
        while not stop():
            act()
            done[me] += 1

    workers = [threading.Thread(target=work, args=(n,)) for n in range(len(acts))]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    time.sleep(seconds)
    over.set()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - began)


# -- other stores


def _rivals(place: str, rounds: int) -> None:
    say("append: other stores")
    table = Table("One durable message of 2 KB elsewhere, against write+fsync of our frame (for information)")
    text = text_of(2_048)
    os.mkdir(f"{place}/rivals")
    rivals = all_rivals(f"{place}/rivals")
    with Keep.open(f"{place}/rivals/keep") as keep:
        (handle,) = raw_files(f"{place}/rivals/raw", 1)
        raw = _raw(handle, _line_of(keep, text))
        ours = _ours(keep, 1, text)[0]
        sides: dict[str, Act] = {"raw": raw, "dreamkeep Turn.add: write, fdatasync": ours}
        sides |= {f"{rival.name}: {rival.promise}": _telling(rival.add, text) for rival in rivals}
        times = take_turns(sides, rounds)
    for name in list(sides)[1:]:
        table.compare(name, times[name], times["raw"], show=microseconds)
    for rival in rivals:
        rival.close()
    table.print()


def _telling(add: Callable[[str], object], text: str) -> Act:
    return lambda: add(text)


if __name__ == "__main__":
    main()
