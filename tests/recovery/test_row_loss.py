"""The cost of finding rows that a session lost."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from dreamkeep.capture.sources.row_loss import Loss, lost


def _row(agent: str, n: int) -> bytes:
    if agent == "opencode":
        words = json.dumps({"type": "text", "text": f"words {n}"})
        held: dict[str, Any] = {"id": f"p{n:06}", "message_id": f"m{n:06}", "data": words}
        return json.dumps({"table": "part", "row": held}).encode()
    words = json.dumps([{"type": "text", "text": f"words {n}"}])
    held = {"id": n, "session_id": "s", "message_id": f"m{n}", "role": "user", "content_json": words, "content": words}
    return json.dumps({"table": "messages", "row": {**held, "active": 1, "timestamp": n}}).encode()


def _steps(agent: str, many: int, *, meant: bool) -> tuple[Loss, int]:
    """And how many calls of Python's and of generators it took."""
    captured = [_row(agent, n) for n in range(many)]
    now = [*captured[:2], _row(agent, many + 1)] if meant else captured[::2]
    count = 0

    def step(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        found = lost(agent, captured, now)
    finally:
        sys.setprofile(before)
    return found, count


@pytest.mark.parametrize("agent", ["hermes", "goose", "opencode"])
@pytest.mark.parametrize("meant", [False, True])
def test_twice_as_many_lost_rows_cost_twice_as_much_and_not_four_times(agent: str, meant: bool) -> None:
    few, cost = _steps(agent, 400, meant=meant)
    more, twice = _steps(agent, 800, meant=meant)
    assert len(more.gone) >= 2 * len(few.gone) and bool(few.gone) == (not meant or agent == "hermes")
    assert twice < 2.5 * cost
