"""The table at the end has the sums of all workers."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from . import counts


@pytest.fixture(autouse=True)
def _own_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_sums", {})


def test_counts_of_one_attack_are_added_up_in_one_line() -> None:
    counts.add("kill -9", {"kills": 1200, "messages_lost": 0})
    counts.add("kill -9", {"kills": 34})
    counts.add("leak", {"secrets_leaked": 0})
    assert counts.table() == ["kill -9  1,234 kills, 0 messages lost", "leak     0 secrets leaked"]


def test_what_two_workers_counted_comes_together() -> None:
    outputs: list[dict[str, Any]] = [{}, {}]
    for n, output in enumerate(outputs, 1):
        counts._sums.clear()
        counts.add("power cut", {"cuts": n, "events_lost": 0})
        counts.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(workeroutput=output)))  # type: ignore[arg-type]
    counts._sums.clear()
    for output in outputs:
        counts.pytest_testnodedown(SimpleNamespace(workeroutput=output), None)
    counts.pytest_testnodedown(SimpleNamespace(), "it crashed before it could say anything")
    assert counts._sums == {"power cut": Counter({"cuts": 3, "events_lost": 0})}
