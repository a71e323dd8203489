"""What every attack is given: chance, time, a place to count, and a keep with the sessions of all agents."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import counts
from .world import World

Count = Callable[..., None]
Rounds = Callable[[float], Iterator[int]]


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{counts.SEED} {request.node.name}")


@pytest.fixture
def count() -> Count:
    """`count("kill -9", kills=3, messages_lost=0)` adds to the table at the end of the run."""

    def add(attack: str, **found: int) -> None:
        counts.add(attack, found)

    return add


@pytest.fixture
def rounds() -> Rounds:
    """Numbers from 1 on, for so many seconds: what is done with the last one is done to its end. At least one."""

    def until(seconds: float) -> Iterator[int]:
        end = time.monotonic() + seconds
        n = 0
        while not n or time.monotonic() < end:
            n += 1
            yield n

    return until


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
