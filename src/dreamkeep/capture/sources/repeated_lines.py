"""Lines that come back into a file which had lost them: those that its journal has told already. Pure.

A file that was cut, emptied or gutted and then is whole again (a backup, a sync) has records that its session's reader has read
before. Told once more, to a reader that stands at the end of the whole file, some would be taken for others. So a frame says
which of its lines are told again (`again`: `which`, as `[first, count]`), and how many lines of the source lie before it in the
journal (`after`): whoever reads passes them over if he has read as many. Where a frame was lost since, he reads them all.

Only as long as nothing else was told since: a record that took another's place (blanked, edited) gives it back by being read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dreamkeep.capture.sources.content import Slice


class Rewritten:
    """A new generation. `fuller`: the number of the one that has lines which this one lacks, and may get back; else 0."""

    def __init__(self, generation: int, old: Iterable[bytes], fuller: int, known: Iterable[bytes]) -> None:
        """`old`: the lines of the generation before; `known`: those that the `fuller` one has."""
        self._known = frozenset(_ended(known))
        self._old = frozenset(old)
        self._missing = set(self._old | self._known)
        self._before = fuller
        self._generation = generation
        self._otherwise = False

    @property
    def fuller(self) -> int:
        if self._otherwise or not self._missing:
            return 0
        return self._before if self._known >= self._old or not self._missing & self._old else self._generation

    def tells_otherwise(self) -> None:
        self._otherwise = True

    def find_repeated(self, lines: Iterable[bytes], new: Iterable[bytes]) -> list[list[int]]:
        """`lines`: what comes next of it; `new`: those that the generation before had not. Which of these were told before?"""
        self._missing.difference_update(lines)
        found: list[list[int]] = []
        for n, line in enumerate(new):
            self._otherwise = self._otherwise or (line not in self._known and line.endswith(b"\n"))
            if self._otherwise or line not in self._known:
                continue
            if found and sum(found[-1]) == n:
                found[-1][1] += 1
            else:
                found.append([n, 1])
        return found


class Grown:
    """What is appended to the beginning of a generation (`fuller`, with the lines `whole`) that is all that was left of it."""

    def __init__(self, left: Sequence[bytes], fuller: int, whole: Iterable[bytes]) -> None:
        lines = _ended(left)
        self._begun = b"".join(left[len(lines) :])
        known = _ended(whole)
        self._behind = known[len(lines) :]
        self._at = 0
        self._whole = fuller
        self._otherwise = known[: len(lines)] != lines

    @property
    def fuller(self) -> int:
        return self._whole if self._at < len(self._behind) and not self._otherwise else 0

    def find_repeated(self, cut: Slice) -> list[list[int]]:
        heard = 0
        for n, line in enumerate(cut.lines):
            if not self.fuller:
                break
            line = self._begun + line
            if cut.more and n == len(cut.lines) - 1:
                self._begun = line
                self._otherwise = not self._behind[self._at].startswith(line)
                break
            self._begun = b""
            self._otherwise = self._behind[self._at] != line + b"\n"
            if not self._otherwise:
                self._at += 1
                heard += 1
        return [[0, heard]] if heard else []


def extra(lines: list[list[int]], after: int) -> dict[str, Any]:
    return {"again": {"which": lines, "after": after}} if lines else {}


def _ended(lines: Iterable[bytes]) -> list[bytes]:
    """Without the last, if that was still being written: nobody has read it."""
    return [line for line in lines if line.endswith(b"\n")]
