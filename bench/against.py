"""This checkout's benches beside those of another commit: `python -m bench.against COMMIT [BENCH…] [--rounds N] [--quick]`.

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
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ("append", "readback", "reindex", "startup", "ingest", "watch", "hook", "tap", "audit", "dream", "mcp", "search")


class Line(NamedTuple):
    """One line of a bench's table. `ratio` is None where it shows a number that is compared with nothing."""

    bench: str
    what: str
    value: str
    ratio: float | None
    goal: str
    result: str


#: (bench, what) → the line as each round printed it.
Rounds = dict[tuple[str, str], list[Line]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", help="what to compare this checkout with")
    parser.add_argument("benches", nargs="*", default=list(BENCHES), metavar="BENCH")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each bench on each side")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: to see that it runs, not to judge")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="work-", dir=ROOT / "bench") as place:
        earlier = Path(place) / "earlier"
        git("worktree", "add", "--quiet", "--detach", str(earlier), options.commit)
        try:
            before, now = run_in_turn((earlier, ROOT), options.benches, options.rounds, ["--quick"] if options.quick else [])
        finally:
            git("worktree", "remove", "--force", str(earlier))
    print_comparison(before, now)


def git(*words: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)


def run_in_turn(checkouts: tuple[Path, Path], benches: list[str], rounds: int, options: list[str]) -> tuple[Rounds, Rounds]:
    found: tuple[Rounds, Rounds] = ({}, {})
    for bench in benches:
        for number in range(rounds):
            # Who begins changes from round to round.
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                print(f"{bench}: round {number + 1}, {('before', 'now')[side]}", file=sys.stderr, flush=True)
                for line in run_bench(checkouts[side], bench, options):
                    found[side].setdefault((bench, line.what), []).append(line)
    return found


def run_bench(checkout: Path, bench: str, options: list[str]) -> list[Line]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(checkout / "bench" / "run.sh"), bench, *options, "--dir", str(ROOT / "bench")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{bench} failed in {checkout} (exit code {done.returncode}); its lines are left out", file=sys.stderr)
        return []
    return read_lines(bench, done.stdout)


def read_lines(bench: str, output: str) -> list[Line]:
    """The tables that a bench prints: `| what | median | against | ratio | range | goal | result |`, each below its title."""
    lines = []
    title = ""
    for text in output.splitlines():
        if text.startswith("### "):
            title = text.removeprefix("### ").partition(" (")[0]
        cells = [cell.strip() for cell in text.strip("| ").split(" | ")]
        if text.startswith("| ") and len(cells) == 7 and cells[0] != "what" and not cells[0].startswith("--"):
            what, value, _, ratio, _, goal, result = cells
            lines.append(Line(bench, f"{title}: {what}", value, None if ratio == "–" else float(ratio), goal, result))
    return lines


def print_comparison(before: Rounds, now: Rounds) -> None:
    print("| bench | what | before | now | now / before | goal | now |")
    print("| ----- | ---- | ------ | --- | ------------ | ---- | --- |")
    for key, lines in now.items():
        earlier, last = before.get(key, []), lines[-1]
        ratios = [line.ratio for line in lines if line.ratio is not None]
        if ratios:
            then = [line.ratio for line in earlier if line.ratio is not None]
            new, old = statistics.median(ratios), statistics.median(then) if then else 0.0
            cells = (f"{old:.2f}" if then else "–", f"{new:.2f}", f"{new / old:.2f}" if old else "–")
        elif last.goal != "–":
            cells = (earlier[-1].value if earlier else "–", last.value, "–")
        else:
            continue
        print(f"| {' | '.join((*key, *cells, last.goal, last.result))} |", flush=True)


if __name__ == "__main__":
    main()
