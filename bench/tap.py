"""What the tap adds to a round trip between client and agent, while the disk stalls; and how fast bytes pass.

Fair, because both sides are the same client and the same agent (it sends back what it gets), connected by pipes directly or
through the tap, in turn. The tap runs on a disk whose every sync takes two seconds: nothing of the journal may be felt. A round
trip passes the tap twice. Added latency is compared at the same percentile: p99 through the tap minus p99 without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from bench.side_by_side import Goal, Table, arguments, milliseconds, say, workplace

_STALL_S = 2
_GOAL = Goal(5, "<")
_UPDATE = b'{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","n":%d}}'
_FRAME = b'{"jsonrpc":"2.0","method":"session/update","params":' + _UPDATE + b"}\n"
_PAUSE_S = 0.002
_BULK = 64 << 20
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PROGRAM = [sys.executable, "-m", "tests.agents.acp_agent"]


class Connected(NamedTuple):
    process: subprocess.Popen[bytes]

    def trip(self, n: int) -> float:
        frame = _FRAME % n
        began = time.perf_counter()
        os.write(self.process.stdin.fileno(), frame)  # type: ignore[union-attr]
        left = len(frame)
        while left:
            left -= len(os.read(self.process.stdout.fileno(), left))  # type: ignore[union-attr]
        return time.perf_counter() - began

    def bulk(self, size: int) -> float:
        """Megabytes in a second, there and back."""
        block = (_FRAME % 0) * 500
        count = size // len(block)

        def feed() -> None:
            for _ in range(count):
                self.process.stdin.write(block)  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

        began = time.perf_counter()
        feeding = threading.Thread(target=feed)
        feeding.start()
        left = count * len(block)
        while left:
            left -= len(os.read(self.process.stdout.fileno(), 1 << 20))  # type: ignore[union-attr]
        feeding.join()
        return size / (1 << 20) / (time.perf_counter() - began)


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    rounds = 500 if given.quick else 5000
    with workplace(given.dir) as place:
        say(f"tap: {rounds} round trips each")
        echo = [*_PROGRAM, "echo"]
        sides = {
            "direct": _connect(echo),
            "tap": _connect([*_PROGRAM, "tap", f"{place}/keep", "--stall", str(_STALL_S), "--", *echo]),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for n in range(-50, rounds):
            for name, side in sides.items():
                took = side.trip(n)
                if n >= 0:
                    times[name].append(took)
            time.sleep(_PAUSE_S)  # as frames come, one after the other, and not as fast as they can
        speeds = {name: side.bulk(_BULK // (8 if given.quick else 1)) for name, side in sides.items()}
        for side in sides.values():
            side.process.kill()
            side.process.wait()
    table = Table("A round trip through the tap, disk stalled, against direct pipes")
    for part in (0.5, 0.99, 0.999):
        direct, tapped = (_percentile(times[name], part) for name in ("direct", "tap"))
        shown = f"{milliseconds(tapped)} − {milliseconds(direct)} = {milliseconds(tapped - direct)}"
        goal = _GOAL if part == 0.99 else None
        table.fact(f"added at p{part * 100:g}", shown, goal, (tapped - direct) * 1000)
    table.fact(
        "bytes there and back, journaled as far as there is room", f"{speeds['tap']:.0f} MB/s; direct {speeds['direct']:.0f}"
    )
    table.print()


def _connect(command: list[str]) -> Connected:
    environment = {**os.environ, "PYTHONPATH": f"{_HERE}/src{os.pathsep}{_HERE}"}
    pipe = subprocess.PIPE
    return Connected(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=_HERE))


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


if __name__ == "__main__":
    main()
