"""One bad item never hides another: an error while one is checked becomes a fault of that item, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from dreamkeep.errors import DreamkeepError
from dreamkeep.index.open import FILE
from dreamkeep.recovery.faults import Fault

T = TypeVar("T")

#: What a check may raise: refusals of the system, our own errors, and what foreign or damaged data does to code that trusts it.
TROUBLE = (
    OSError,
    DreamkeepError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    MemoryError,
)


def check_each(items: Iterable[T], check: Callable[[T], Iterable[Fault]], failed: Callable[[T, str], Fault]) -> Iterator[Fault]:
    """The faults of every item. `failed` makes a fault of an item that could not be checked, and the reason."""
    for item in items:
        try:
            yield from check(item)
        except TROUBLE as problem:
            raise_if_index(problem)
            yield failed(item, describe_error(problem))


def raise_if_index(problem: BaseException) -> None:
    """An error of the index is no fault of the item that was checked with its help: the caller must know."""
    if isinstance(problem, DreamkeepError) and problem.where.endswith(f"/{FILE}"):
        raise problem


def describe_error(problem: BaseException) -> str:
    if isinstance(problem, DreamkeepError):
        return problem.what
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    return f"{type(problem).__name__}: {problem}"
