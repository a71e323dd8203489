"""One bad item never hides another: what goes wrong while one is looked at becomes a fault of that one, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from dreamkeep.errors import DreamkeepError
from dreamkeep.index.open import FILE
from dreamkeep.recovery.faults import Fault

T = TypeVar("T")

#: What looking may raise: the system's refusals, our own, and what foreign or damaged data does to code that believes in it.
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


def check_each(things: Iterable[T], look: Callable[[T], Iterable[Fault]], told: Callable[[T, str], Fault]) -> Iterator[Fault]:
    """The faults of every thing. `told` makes a fault of what could not be looked at, and why."""
    for thing in things:
        try:
            yield from look(thing)
        except TROUBLE as problem:
            raise_if_index(problem)
            yield told(thing, why(problem))


def raise_if_index(problem: BaseException) -> None:
    """The index is nobody's fault that is looked at with its help: whoever opened it must know."""
    if isinstance(problem, DreamkeepError) and problem.where.endswith(f"/{FILE}"):
        raise problem


def why(problem: BaseException) -> str:
    if isinstance(problem, DreamkeepError):
        return problem.what
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    return f"{type(problem).__name__}: {problem}"
