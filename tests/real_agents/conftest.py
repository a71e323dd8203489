"""A stub for a model, and agents that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real_agents.agents import Agent
from tests.real_agents.stub import Stub, running


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running() as found:
        yield found


@pytest.fixture
def agent_in(tmp_path: Path, stub: Stub) -> Callable[[str, str], Agent]:
    def make(name: str, home: str) -> Agent:
        work = tmp_path / "work"
        for folder in (work, tmp_path / home):
            folder.mkdir(exist_ok=True)
        return Agent(name, tmp_path / home, work, stub)

    return make
