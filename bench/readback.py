"""What reading a session back costs, against a bare loop of read + crc32 + orjson.loads.

Fair, because the bare loop goes over the very same lines in the same files, and believes them: it computes each checksum but does
not compare it, follows no links between lines, and looks for no damage. `Reading` does all that; whole passes take turns.
How fast a bare loop is depends on how it reads: it comes in three forms, and everything is compared with the fastest of them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from zlib import crc32

import orjson
from bench.rivals import Rival, all_rivals
from bench.sessions import folder, part_files, texts_of
from bench.side_by_side import Act, Goal, Table, arguments, milliseconds, say, take_turns, workplace

from dreamkeep import Keep
from dreamkeep.host import RealHost
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_events

_GOAL = Goal(1.3)


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    turns, rounds = (500, 7) if given.quick else (5_000, 31)
    with workplace(given.dir) as place:
        for prompt, answer, goal in ((2_048, 4_096, _GOAL), (60, 140, None)):
            _measure(f"{place}/{prompt}", turns, rounds, (prompt, answer), goal)


def _measure(place: str, turns: int, rounds: int, sizes: tuple[int, int], goal: Goal | None) -> None:
    say(f"readback: {turns:,} turns of {sum(sizes):,} bytes")
    os.mkdir(place)
    journal = _record(f"{place}/keep", turns, sizes)
    rivals = [rival for rival in all_rivals(place) if rival.reads]
    for rival in rivals:
        _tell(rival, turns, sizes)
    times = take_turns({**_sides(journal), **{rival.name: rival.read for rival in rivals}}, rounds)
    fastest, *slower = sorted(_BARE, key=lambda name: median(times[name]))
    bare = times[fastest]
    table = Table(f"Read-back of {turns:,} turns ({sizes[0]} B prompt, {sizes[1]} B answer), against a bare loop ({fastest})")
    table.compare("Reading: frames", times["frames"], bare, goal, show=milliseconds)
    table.compare("events(Reading)", times["events"], bare, show=milliseconds)
    for form in slower:
        table.compare(f"a bare loop, {form}", times[form], bare, show=milliseconds)
    for rival in rivals:
        table.compare(rival.reads, times[rival.name], bare, show=milliseconds)
        rival.close()
    table.print()


def _record(root: str, turns: int, sizes: tuple[int, int]) -> str:
    prompts, answers = map(texts_of, sizes)
    with Keep.open(root) as keep:
        session = keep.session("read")
        for _ in range(turns):
            session.record(prompts(), ("assistant", answers()))
        return folder(root, session)


def _tell(rival: Rival, turns: int, sizes: tuple[int, int]) -> None:
    prompts, answers = map(texts_of, sizes)
    for _ in range(turns):
        rival.add(prompts())
        rival.add(answers())


def _sides(journal: str) -> dict[str, Act]:
    host = RealHost()
    files = part_files(journal)
    return {
        "frames": lambda: _exhaust(Reading(host, journal)),
        "events": lambda: _exhaust(read_events(host, journal)),
        **{form: partial(loop, files) for form, loop in _BARE.items()},
    }


def _exhaust(found: Iterable[object]) -> None:
    """Take everything and keep nothing, at no cost of our own."""
    deque(found, maxlen=0)


def _line_by_line(files: list[str], buffer_size: int) -> None:
    loads = orjson.loads
    for path in files:
        with open(path, "rb", buffer_size) as part:
            for line in part:
                crc32(line)
                loads(line)


def _part_at_once(files: list[str]) -> None:
    loads = orjson.loads
    for path in files:
        with open(path, "rb") as part:
            for line in part.read().split(b"\n")[:-1]:
                crc32(line)
                loads(line)


_BARE: dict[str, Callable[[list[str]], None]] = {
    "line by line, 256 KB buffer": partial(_line_by_line, buffer_size=1 << 18),
    "line by line, Python's own buffer": partial(_line_by_line, buffer_size=-1),
    "a part at once": _part_at_once,
}


if __name__ == "__main__":
    main()
