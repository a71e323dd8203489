"""Whatever an agent's file may hold, nothing escapes, everything is kept raw, and the fold's memory is JSON.

Mutations of generated homes: cut, bits flipped, wrong types, deep nesting, huge values, NULs, doubled keys, lines lost, doubled,
swapped. A few of them are part of the suite that every agent's folder passes (tests/agents/suite.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dreamkeep.agents.registry import BUILT_IN
from tests.agents import suite


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("agent", sorted(BUILT_IN))
def test_no_input_makes_a_reader_or_the_fold_fail(agent: str, count: int, tmp_path: Path) -> None:
    """B2, W6, W7."""
    suite.check_fuzz(suite.built_in(agent), tmp_path, count)
