"""The table at the end of a run: how often each attack was made, and what it found. Also with several workers of pytest-xdist."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

#: The same for all workers: they inherit it.
SEED = int(os.environ.setdefault("ATTACK_SEED", str(random.SystemRandom().randrange(10**6))))

_WORKER = "attack_counts"
#: By attack, what was counted.
_sums: dict[str, Counter[str]] = {}


def add(attack: str, counted: dict[str, int]) -> None:
    _sums.setdefault(attack, Counter()).update(counted)


def table() -> list[str]:
    """One line for each attack. Names are said as they are counted: `messages_lost=0` becomes `0 messages lost`."""
    width = max(map(len, _sums), default=0)
    rows = []
    for attack, found in sorted(_sums.items()):
        numbers = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in found.items())
        rows.append(f"{attack:<{width}}  {numbers}")
    return rows


# -- hooks of pytest; tests/conftest.py takes them in


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its counts to whoever started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_WORKER] = {attack: dict(found) for attack, found in _sums.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    for attack, found in getattr(node, "workeroutput", {}).get(_WORKER, {}).items():
        add(attack, found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _sums:
        terminalreporter.section(f"attacks, seed {SEED}")
        for row in table():
            terminalreporter.write_line(row)
