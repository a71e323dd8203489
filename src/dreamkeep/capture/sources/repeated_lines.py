"""Lines that come back into a file which had lost them, and that its journal has already. Pure.

A file that was cut or emptied and is whole again later (a backup, a sync) has records that its session's reader has read before.
If the reader, which stands at the end of the whole file, read them once more, it would take some for new ones. So a frame names
its repeated lines (`again`: `which`, as `[first, count]`) and how many lines of the source lie before it in the journal
(`after`). A reader that has read as many skips them. If a frame was lost since, it reads them all.

This holds only while nothing different was read since: a record that replaced another (blanked, edited) must be undone by reading
the other one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dreamkeep.capture.sources.content import Slice


class RewrittenLines:
    """The lines of a new generation. `fuller`: the generation that has lines which this one lacks, and may get back; else 0."""

    def __init__(self, generation: int, old: Iterable[bytes], fuller: int, known: Iterable[bytes]) -> None:
        """`old`: the lines of the generation before; `known`: those of the `fuller` one."""
        self._known = frozenset(_ended(known))
        self._old = frozenset(old)
        self._missing = set(self._old | self._known)
        self._before = fuller
        self._generation = generation
        self._differs = False

    @property
    def fuller(self) -> int:
        if self._differs or not self._missing:
            return 0
        return self._before if self._known >= self._old or not self._missing & self._old else self._generation

    def set_differs(self) -> None:
        self._differs = True

    def find_repeated(self, lines: Iterable[bytes], new: Iterable[bytes]) -> list[list[int]]:
        """`lines`: the next lines of it; `new`: those that the generation before did not have. Returns which of `new` were read
        before."""
        self._missing.difference_update(lines)
        found: list[list[int]] = []
        for n, line in enumerate(new):
            self._differs = self._differs or (line not in self._known and line.endswith(b"\n"))
            if self._differs or line not in self._known:
                continue
            if found and sum(found[-1]) == n:
                found[-1][1] += 1
            else:
                found.append([n, 1])
        return found


class AppendedLines:
    """Lines appended to what was left (`left`) of a generation (`fuller`, with the lines `whole`)."""

    def __init__(self, left: Sequence[bytes], fuller: int, whole: Iterable[bytes]) -> None:
        lines = _ended(left)
        self._begun = b"".join(left[len(lines) :])
        known = _ended(whole)
        self._behind = known[len(lines) :]
        self._at = 0
        self._whole = fuller
        self._differs = known[: len(lines)] != lines

    @property
    def fuller(self) -> int:
        return self._whole if self._at < len(self._behind) and not self._differs else 0

    def find_repeated(self, cut: Slice) -> list[list[int]]:
        count = 0
        for n, line in enumerate(cut.lines):
            if not self.fuller:
                break
            line = self._begun + line
            if cut.more and n == len(cut.lines) - 1:
                self._begun = line
                self._differs = not self._behind[self._at].startswith(line)
                break
            self._begun = b""
            self._differs = self._behind[self._at] != line + b"\n"
            if not self._differs:
                self._at += 1
                count += 1
        return [[0, count]] if count else []


def extra_of(lines: list[list[int]], after: int) -> dict[str, Any]:
    return {"again": {"which": lines, "after": after}} if lines else {}


def _ended(lines: Iterable[bytes]) -> list[bytes]:
    """Without a last line that was still being written: no reader has read it."""
    return [line for line in lines if line.endswith(b"\n")]
