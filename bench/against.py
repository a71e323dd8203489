"""This checkout's benches against those of another commit: `python -m bench.against COMMIT [BENCH…] [--rounds N] [--quick]`.

Both run their own benches, each in an environment of its own, in turn. A line's ratio is taken within one run, against what that
bench compares with. The medians of these ratios are compared here, so a busy machine falls on both sides alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ("append", "readback", "reindex", "startup", "ingest", "watch", "hook", "tap", "audit", "dream", "mcp", "search")

#: (bench, line) → its ratios, one for each round.
Ratios = dict[tuple[str, str], list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", help="what to compare this checkout with")
    parser.add_argument("benches", nargs="*", default=list(BENCHES), metavar="BENCH")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each bench on each side")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: to see that it runs, not to judge")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="work-", dir=ROOT / "bench") as place:
        earlier = Path(place) / "earlier"
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(earlier), options.commit], check=True
        )
        try:
            before, now = run_in_turn((earlier, ROOT), options.benches, options.rounds, ["--quick"] if options.quick else [])
        finally:
            git("worktree", "remove", "--force", str(earlier))
    print_comparison(before, now)


def git(*words: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)


def run_in_turn(checkouts: tuple[Path, Path], benches: list[str], rounds: int, options: list[str]) -> tuple[Ratios, Ratios]:
    found: tuple[Ratios, Ratios] = (defaultdict(list), defaultdict(list))
    for bench in benches:
        for turn in range(rounds):
            # Who begins changes from round to round.
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                print(f"{bench}: round {turn + 1}, {('before', 'now')[side]}", file=sys.stderr, flush=True)
                for line, ratio in run_bench(checkouts[side], bench, options).items():
                    found[side][bench, line].append(ratio)
    return found


def run_bench(checkout: Path, bench: str, options: list[str]) -> dict[str, float]:
    """The ratio of each line that has one."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(checkout / "bench" / "run.sh"), bench, *options, "--dir", str(ROOT / "bench")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return read_ratios(done.stdout)


def read_ratios(output: str) -> dict[str, float]:
    """From the tables that a bench prints: `| what | median | against | ratio | range | goal | result |`.

    A line's name may stand in several tables; the table's title tells them apart.
    """
    ratios = {}
    title = ""
    for line in output.splitlines():
        title = line.removeprefix("### ") if line.startswith("### ") else title
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| ") and len(cells) == 7 and cells[3] not in ("ratio", "–") and not cells[3].startswith("-"):
            ratios[f"{title}: {cells[0]}"] = float(cells[3])
    return ratios


def print_comparison(before: Ratios, now: Ratios) -> None:
    print("| bench | what | before | now | now / before |")
    print("| ----- | ---- | ------ | --- | ------------ |")
    for bench, line in before:
        if now.get((bench, line)):
            old, new = statistics.median(before[bench, line]), statistics.median(now[bench, line])
            print(f"| {bench} | {line} | {old:.2f} | {new:.2f} | {new / old if old else 0:.2f} |")
    missing = sorted({key for key in (*before, *now) if not (before.get(key) and now.get(key))})
    for bench, line in missing:
        print(f"Only on one side: {bench}: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
