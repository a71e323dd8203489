"""Checksums over many files, several at a time: a deep audit does little else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dreamkeep.index import part_fingerprints

T = TypeVar("T")

_THREADS = 3
_GROUP = 32


def check_in_threads(items: Sequence[T], check: Callable[[T, memoryview], bool]) -> list[T]:
    """The items for which `check` is true. It also gets a buffer that no other thread uses."""
    from concurrent.futures import ThreadPoolExecutor

    def check_group(group: Sequence[T]) -> list[T]:
        buffer = part_fingerprints.make_buffer()
        return [item for item in group if check(item, buffer)]

    groups = (items[n : n + _GROUP] for n in range(0, len(items), _GROUP))
    with ThreadPoolExecutor(_THREADS) as pool:
        return [item for group in pool.map(check_group, groups) for item in group]
