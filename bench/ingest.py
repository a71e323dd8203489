"""What importing transcripts costs: the first time, again when nothing changed, while one grows; in time, memory and disk.

Fair, because everything is compared within one run, on the same files, which are in the page cache for both sides. A first import
goes into a new keep each time and is durable when it returns (a sync for every 2 MB); the loops it is compared with only read, so
there is also one that copies as durably. The re-run opens the keep anew each time, as a command does. Memory and the files that
are opened are told by processes of their own: the interpreter itself reports every file that it opens. Journals are compared with
their sources by the length of their files, whole; nothing counts unless the source's bytes come back out of them, hot and cold.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import NamedTuple

import orjson
import zstandard
from bench.side_by_side import Act, Goal, Ratio, Table, arguments, milliseconds, say, take_turns, workplace
from bench.transcripts import MB, Talk, claude, claude_home, claude_many, mixed

from dreamkeep import Keep
from dreamkeep.capture.context import IngestOutcome
from dreamkeep.capture.sources import rows, source_bytes
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.scan import read_bodies
from dreamkeep.journal.writer import PART_SIZE
from dreamkeep.session.raw import unpack

_UNCHANGED = Goal(5)
_OPENS = Goal(0, "=")
_FLAT = Goal(1.3)
_HOT = Goal(1.35)
_COLD = Goal(0.35)
_FOLLOWING = Goal(2)
_EXACT = Goal(0, "=")
_BLOCK = 1 << 20
_COPY = 2 << 20
_SMALL_FILE = 4_000
_FOLDERS = 50
_REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Sizes(NamedTuple):
    first: int
    files: int
    flat: tuple[int, int]
    mix: int
    rounds: int


_FULL = Sizes(64 * MB, 10_000, (100 * MB, 1_000 * MB), 100 * MB, 15)
_QUICK = Sizes(16 * MB, 1_000, (20 * MB, 200 * MB), 20 * MB, 3)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=list(_LINES), help="one part of it")
    parser.add_argument("--peak-of", nargs=2, metavar=("KEEP", "HOME"), help="only import, and tell time and memory as JSON")
    parser.add_argument(
        "--opens-of", nargs=2, metavar=("KEEP", "HOME"), help="only import, and tell how many files there were opened"
    )
    given = parser.parse_args()
    if given.peak_of:
        print(json.dumps(_import_and_tell(*given.peak_of)))
    elif given.opens_of:
        print(json.dumps(_import_and_count_opens(*given.opens_of)))
    else:
        with workplace(given.dir) as place:
            for name, measure in _LINES.items():
                if given.only in (None, name):
                    measure(f"{place}/{name}", _QUICK if given.quick else _FULL)
                    shutil.rmtree(f"{place}/{name}")


def _imported(keep: str, home: str, agents: Iterable[str] = ("claude",), host: RealHost | None = None) -> list[IngestOutcome]:
    """As a command does it: open the keep, look everywhere, close it. The machine's own settings must not matter."""
    with Keep.open(keep, environment={}, host=host) as opened:
        found = list(opened.ingest(home=home, agents=list(agents)))
    problems = [one for one in found if one.problem]
    if problems:
        raise SystemExit(f"{len(problems)} problems, the first: {problems[0]}")
    return found


def _once(value: float) -> Ratio:
    """A ratio that is the same each time."""
    return Ratio(value, value, value)


# -- the first time


def _first(place: str, sizes: Sizes) -> None:
    say(f"ingest: one transcript of {sizes.first // MB} MB")
    path = claude_home(f"{place}/home", sizes.first)
    size = os.path.getsize(path)
    sides: dict[str, Act] = {
        "import": _importing(f"{place}/home", place),
        "reading + sha256": lambda: _digest(path, "sha256"),
        "reading + blake2b": lambda: _digest(path, "blake2b"),
        "orjson.loads of each line": lambda: _parse(path),
        "copying, a sync for every 2 MB": lambda: _copy(path, f"{place}/copy"),
    }
    times = take_turns(sides, sizes.rounds, warm_up=1)
    rates = {name: [size / MB / took for took in taken] for name, taken in times.items()}
    table = Table(f"First import of a transcript of {size / MB:.0f} MB, {_lines_in(path):,} lines (MB/s: more is better)")
    for name in list(sides)[1:]:
        table.compare(f"import, against {name}", rates["import"], rates[name], show=_per_second)
    table.print()


def _importing(home: str, place: str) -> Act:
    number = count()
    return lambda: _imported(f"{place}/keep-{next(number)}", home)


def _blocks(path: str, size: int = _BLOCK) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while block := file.read(size):
            yield block


def _digest(path: str, name: str) -> str:
    found = hashlib.new(name)
    for block in _blocks(path):
        found.update(block)
    return found.hexdigest()


def _parse(path: str) -> None:
    with open(path, "rb", buffering=1 << 18) as file:
        for line in file:
            orjson.loads(line)


def _copy(path: str, to: str) -> None:
    handle = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for block in _blocks(path, _COPY):
        os.write(handle, block)
        os.fdatasync(handle)
    os.close(handle)


def _lines_in(path: str) -> int:
    return sum(block.count(b"\n") for block in _blocks(path))


def _per_second(rate: float) -> str:
    return f"{rate:,.0f} MB/s"


# -- again, when nothing changed


def _again(place: str, sizes: Sizes) -> None:
    say(f"ingest: importing {sizes.files:,} small transcripts, which takes its time")
    home, keep = f"{place}/home", f"{place}/keep"
    claude_many(home, sizes.files, _FOLDERS, _SMALL_FILE)
    began = time.perf_counter()
    _imported(keep, home)
    took = time.perf_counter() - began
    sides: dict[str, Act] = {
        "look": lambda: _look(f"{home}/.claude/projects", sizes.files),
        "claude": lambda: _unchanged(keep, home, sizes.files, ("claude",)),
        "all": lambda: _unchanged(keep, home, sizes.files, ()),
    }
    say("ingest: again, unchanged")
    times = take_turns(sides, sizes.rounds * 2, warm_up=2)
    table = Table(f"Again over {sizes.files:,} unchanged sources in {_FOLDERS} folders, against scandir + stat of them")
    table.compare("import again", times["claude"], times["look"], _UNCHANGED, show=milliseconds)
    table.compare("import again, looking for all agents", times["all"], times["look"], show=milliseconds)
    opened = _child("--opens-of", keep, home)["opened"]
    table.fact("transcripts opened by that", f"{opened:.0f}", _OPENS, opened)
    table.fact("their first import, a durable journal for each", f"{took:,.1f} s ({sizes.files / took:,.0f} sessions/s)")
    table.print()


def _look(projects: str, expected: int) -> None:
    found = 0
    with os.scandir(projects) as folders:
        for folder in folders:
            with os.scandir(folder.path) as inside:
                for entry in inside:
                    entry.stat()
                    found += 1
    if found != expected:
        raise SystemExit(f"{found} files, not {expected}")


def _unchanged(keep: str, home: str, expected: int, agents: Iterable[str]) -> None:
    found = _imported(keep, home, agents)
    if len(found) != expected or any(one.new_events or one.state != "unchanged" for one in found):
        raise SystemExit(f"of {expected} unchanged sources something was taken: {found[:3]}")


def _import_and_count_opens(keep: str, home: str) -> dict[str, float]:
    """Python reports `open` and `os.open`, whoever calls them; what SQLite opens it does not see, and here is none."""
    opened = 0

    def notice(event: str, given: tuple[object, ...]) -> None:
        nonlocal opened
        if event == "open" and isinstance(given[0], str) and given[0].startswith(home) and given[0].endswith(".jsonl"):
            opened += 1

    sys.addaudithook(notice)
    _imported(keep, home)
    return {"opened": opened}


# -- memory


def _memory(place: str, sizes: Sizes) -> None:
    peaks, speeds = [], []
    for size in sizes.flat:
        say(f"ingest: memory for {size // MB} MB")
        home = f"{place}/home-{size}"
        claude_home(home, size)
        told = _child("--peak-of", f"{place}/keep-{size}", home)
        peaks.append(told["peak_mb"])
        speeds.append(size / MB / told["seconds"])
        shutil.rmtree(home)
        shutil.rmtree(f"{place}/keep-{size}")
    small, large = (f"{size // MB:,} MB" for size in sizes.flat)
    table = Table("Highest memory (RSS) of a process that imports one transcript")
    table.line(f"{large}, against {small}", f"{peaks[1]:.0f} MB", f"{peaks[0]:.0f} MB", _once(peaks[1] / peaks[0]), _FLAT)
    table.fact(f"speed meanwhile: {large}; {small}", f"{speeds[1]:.0f} MB/s; {speeds[0]:.0f} MB/s")
    table.print()


def _child(option: str, keep: str, home: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.ingest", option, keep, home]
    told: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=_REPOSITORY).stdout)
    return told


def _import_and_tell(keep: str, home: str) -> dict[str, float]:
    began = time.perf_counter()
    _imported(keep, home)
    return {"seconds": time.perf_counter() - began, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Linux hands a parent's peak on to the child in getrusage; /proc tells our own, so that one is asked first."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return int(next(line.split()[1] for line in status if line.startswith("VmHWM"))) / 1024
    except FileNotFoundError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# -- disk


class Kept(NamedTuple):
    """Bytes: of the sources, of what zstd makes of each, of their journals while hot and when cold. `wrong`: not exact."""

    source: int = 0
    squeezed: int = 0
    hot: int = 0
    cold: int = 0
    wrong: int = 0

    def plus(self, other: Kept) -> Kept:
        return Kept(*map(sum, zip(self, other, strict=True)))


def _disk(place: str, sizes: Sizes) -> None:
    table = Table("Bytes of journals against bytes of their sources (zstd -3 of the sources themselves in brackets)")
    real = os.environ.get("DREAMKEEP_TRANSCRIPTS") or f"{_REPOSITORY}/../shared/data/transcripts"
    for agent in ("claude", "codex", "gemini", "pi", "opencode", "hermes"):
        if os.path.isdir(f"{real}/{agent}"):
            goals = (_HOT, _COLD) if agent == "claude" else (None, None)
            _tell(table, f"real sample of {agent}", _kept(f"{place}/real-{agent}", f"{real}/{agent}", agent), goals)
    whole = Kept()
    for agent, home in mixed(f"{place}/homes", sizes.mix):
        say(f"ingest: disk, {agent}")
        kept = _kept(f"{place}/{agent}", home, agent)
        _tell(table, f"mix: {agent}", kept, (None, None))
        whole = whole.plus(kept)
    _tell(table, f"mix of {whole.source / 1e6:.0f} MB", whole, (_HOT, _COLD))
    table.fact("sources of it that do not come back exactly", str(whole.wrong), _EXACT, whole.wrong)
    table.print()


def _tell(table: Table, what: str, kept: Kept, goals: tuple[Goal | None, Goal | None]) -> None:
    source = f"{kept.source / 1e6:.2f} MB"
    exact = "" if not kept.wrong else f", {kept.wrong} NOT EXACT"
    for state, size, goal in (("hot", kept.hot, goals[0]), ("cold", kept.cold, goals[1])):
        share = size / kept.source
        squeezed = f" ({kept.squeezed / kept.source:.2f})" if state == "cold" else ""
        table.line(f"{what}, {state}{squeezed}{exact}", f"{size / 1e6:.2f} MB", source, _once(share), goal)


def _kept(keep: str, home: str, agent: str) -> Kept:
    found = _imported(keep, home, (agent,))
    sources = {one.path for one in found if one.new_bytes}
    hot, wrong = _size_below(f"{keep}/journal"), _inexact(keep, found)
    with Keep.open(keep, environment={}) as opened:
        opened.compress(everything=True)
    cold, wrong_cold = _size_below(f"{keep}/journal"), _inexact(keep, found)
    squeezed = sum(_squeezed(path) for path in sources)
    return Kept(sum(map(os.path.getsize, sources)), squeezed, hot, cold, wrong + wrong_cold)


def _inexact(keep: str, found: Iterable[IngestOutcome]) -> int:
    """Sources whose bytes (of a database: whose rows) do not come back."""
    host, wrong = RealHost(), 0
    for one in found:
        if not one.new_bytes:
            continue
        folder = f"{keep}/{folder_of(one.session)}"
        names = {about["path"]: (name, about["form"]) for name, about in source_bytes.sources(host, folder).items()}
        name, form = names[one.path]
        if form == "rows":
            wrong += not _same_rows(host, folder, one)
        else:
            wrong += not _same_bytes(source_bytes.lines(host, folder, name), one.path)
    return wrong


def _same_bytes(rejoined: Iterable[bytes], path: str) -> bool:
    with open(path, "rb") as source:
        return all(piece == source.read(len(piece)) for piece in rejoined) and not source.read(1)


def _same_rows(host: RealHost, folder: str, one: IngestOutcome) -> bool:
    native = one.session.partition(":")[2]
    ours = [line for _, raw in read_bodies(host, folder, (Kind.SOURCE_ROWS,)) for line in unpack(raw)]
    return ours == [row.line for row in rows.rows(host, one.agent, one.path, native, {})]


def _squeezed(path: str) -> int:
    press = zstandard.ZstdCompressor(level=3).compressobj()
    return sum(len(press.compress(block)) for block in _blocks(path)) + len(press.flush())


def _size_below(folder: str) -> int:
    return sum(os.path.getsize(f"{at}/{name}") for at, _, names in os.walk(folder) for name in names)


# -- following


class Counting(RealHost):
    """Counts what is read of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handles: set[int] = set()
        self.count = 0

    def open_read(self, path: str) -> int:
        handle = super().open_read(path)
        if path == self._path:
            self._handles.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self._handles.discard(handle)
        super().close(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        found = super().read(handle, size, offset)
        self.count += len(found) if handle in self._handles else 0
        return found


def _following(place: str, sizes: Sizes) -> None:
    say("ingest: following 1 KB")
    wanted = {"large": sizes.first, "one part": PART_SIZE * 9 // 10, "small": MB}
    paths = {side: claude_home(f"{place}/{side}", size) for side, size in wanted.items()}
    more = _kilobytes()
    for side, path in paths.items():
        _imported(f"{place}/keep-{side}", f"{place}/{side}")
        if side != "small":
            _fill_last_part(place, side, path, more)
    table = Table(f"Following 1 KB more of a transcript of {sizes.first // MB} MB")
    times = _taking_turns(paths, more, lambda side: _imported(f"{place}/keep-{side}", f"{place}/{side}"), sizes.rounds * 2)
    table.compare("keep opened anew each time, against 1 MB", times["large"], times["small"], _FOLLOWING, show=milliseconds)
    as_full = "keep opened anew each time, against one whose only part is as full"
    table.compare(as_full, times["large"], times["one part"], show=milliseconds)
    keeps = {side: Keep.open(f"{place}/keep-{side}", environment={}) for side in paths}

    def stay(side: str) -> list[IngestOutcome]:
        return list(keeps[side].ingest(home=f"{place}/{side}", agents=["claude"]))

    times = _taking_turns(paths, more, stay, sizes.rounds * 2)
    table.compare("keep stays open, against 1 MB", times["large"], times["small"], show=milliseconds)
    for keep in keeps.values():
        keep.close()
    read = {side: _bytes_read(f"{place}/keep-{side}", f"{place}/{side}", path, more()) for side, path in paths.items()}
    found = _once(read["large"] / read["small"])
    table.line("bytes read of the transcript, against 1 MB", f"{read['large']:,}", f"{read['small']:,}", found)
    ends = [f"{_last_part(f'{place}/keep-{side}') / MB:.1f} MB" for side in paths]
    table.fact("the last part of their journals, which opening reads", f"{ends[0]}; as full: {ends[1]}; of 1 MB: {ends[2]}")
    table.print()


def _bytes_read(keep: str, home: str, path: str, data: bytes) -> int:
    host = Counting(path)
    _append(path, data)
    _imported(keep, home, host=host)
    return host.count


def _last_part(keep: str) -> int:
    files = [f"{at}/{name}" for at, _, names in os.walk(f"{keep}/journal/sessions") for name in names if name.endswith(".jsonl")]
    return os.path.getsize(max(files))


def _fill_last_part(place: str, side: str, path: str, more: Callable[[], bytes]) -> None:
    """Opening a journal reads its last part: so the one that goes on is nearly full, as bad as it gets whatever the size."""
    while not PART_SIZE * 0.92 < _last_part(f"{place}/keep-{side}") < PART_SIZE * 0.95:
        _append(path, b"".join(more() for _ in range(50)))
        _imported(f"{place}/keep-{side}", f"{place}/{side}")


def _taking_turns(
    paths: dict[str, str], more: Callable[[], bytes], act: Callable[[str], list[IngestOutcome]], rounds: int
) -> dict[str, list[float]]:
    """Like `take_turns`, but what is to be followed is written before the clock starts."""
    sides = list(paths)
    times: dict[str, list[float]] = {side: [] for side in sides}
    for n in range(-2, rounds):
        first = n % len(sides)
        for side in sides[first:] + sides[:first]:
            data = more()
            _append(paths[side], data)
            began = time.perf_counter()
            found = act(side)
            took = time.perf_counter() - began
            if sum(one.new_bytes for one in found) != len(data):
                raise SystemExit(f"{len(data)} bytes were appended, but not taken: {found}")
            if n >= 0:
                times[side].append(took)
    return times


def _append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def _kilobytes() -> Callable[[], bytes]:
    """Lines of together about 1 KB, others at each call."""
    lines = (orjson.dumps(line) + b"\n" for line in claude(Talk(99), "more"))

    def more() -> bytes:
        return next(line for line in lines if 900 < len(line) < 1200)

    return more


_LINES: dict[str, Callable[[str, Sizes], None]] = {
    "first": _first,
    "again": _again,
    "memory": _memory,
    "disk": _disk,
    "following": _following,
}


if __name__ == "__main__":
    main()
