"""A JSON document that is rewritten whole at every save, cut into pieces so that a new version costs only what changed. Pure.

    {"title":…,"messages": [    frame: everything up to the elements
    ␠␠{"role":…}                element, with the separator before it
    ,␠{"role":…}
    ␠],"tool_calls": […         frame: what closes one array and opens the next
    ␠]}                         frame: the end

Joined together, the pieces are always exactly the input. Text that is no JSON object, or is torn, is cut into blocks. A delta
describes a new version by runs of the old one's pieces. Frames are inserted each time: they are small, and they tell in which
array an inserted element lies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

#: Arrays of the top level whose elements are pieces of their own, however small.
ARRAYS = frozenset((b"messages", b"context_messages", b"tool_calls"))
#: Any other top-level array or object is cut, too, when it is bigger than this.
_BIG = 4096
#: What can't be parsed is cut into blocks of this size.
BLOCK = 256 << 10
#: No document has more pieces than this; the rest of it is cut into blocks.
MOST_PIECES = 1 << 18

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
#: One member's name.
_NAME = re.compile(rb"\s*+(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
#: A value that holds no other.
_PLAIN = re.compile(rb"(?:" + _STRING + rb'|[^\s"\[\]{},:]++)', re.DOTALL)
#: Up to the next bracket or comma; no match when a string never ends.
_NEXT = re.compile(rb"(?:[^\"\[\]{},]++|" + _STRING + rb")*+([\[\]{},])", re.DOTALL)
_BRACKET = re.compile(rb"(?:[^\"\[\]{}]++|" + _STRING + rb")*+([\[\]{}])", re.DOTALL)
_SPACE = re.compile(rb"\s*+")
_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_OPEN, _CLOSE = b"[{", b"]}"


@dataclass(frozen=True, slots=True)
class CopiedPieces:
    """A run of pieces of the old version."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Insert:
    piece: bytes


Op = CopiedPieces | Insert


class _Torn(Exception):
    """It can't be parsed from here on."""


def split(data: bytes) -> list[bytes]:
    cuts: list[int] = []
    whole = True
    try:
        _object(data, cuts)
    except _Torn:
        whole = False
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if end > start]
    if not whole and pieces:
        pieces += _blocks(pieces.pop())
    return pieces


def mark(piece: bytes) -> bytes:
    """Stands for a piece of the old version in `delta`."""
    return blake2b(piece, digest_size=16).digest()


def delta(old: Sequence[bytes], new: Sequence[bytes]) -> list[Op]:
    """`new` pieces by the marks of the `old` ones."""
    marks = [mark(piece) for piece in new]
    if marks == list(old):
        return [CopiedPieces(0, len(marks))] if marks else []
    first = {known: place for place, known in reversed(list(enumerate(old)))}
    ops: list[Op] = []
    for piece, known in zip(new, marks, strict=True):
        last = ops[-1] if ops else None
        if isinstance(last, CopiedPieces):
            follows = last.first + last.count
            if follows < len(old) and old[follows] == known and not _frame(piece):
                ops[-1] = CopiedPieces(last.first, last.count + 1)
                continue
        place = first.get(known)
        ops.append(Insert(piece) if place is None or _frame(piece) else CopiedPieces(place, 1))
    return ops


def takes_away(old: Sequence[bytes], ops: Sequence[Op]) -> bool:
    """Whether an element of the old version is not in the new one, or not as it was."""
    kept = {place for op in ops if isinstance(op, CopiedPieces) for place in range(op.first, op.first + op.count)}
    return any(place not in kept and not _frame(piece) for place, piece in enumerate(old))


def packed(ops: Sequence[Op]) -> tuple[list[list[int] | int], list[bytes]]:
    """As a journal's frame holds it (see rejoin.py): `[first, count]` copies, a number inserts that many; and what it inserts."""
    short: list[list[int] | int] = []
    for op in ops:
        last = short[-1] if short else None
        if isinstance(op, CopiedPieces):
            short.append([op.first, op.count])
        elif isinstance(last, int):
            short[-1] = last + 1
        else:
            short.append(1)
    return short, [op.piece for op in ops if isinstance(op, Insert)]


def _frame(piece: bytes) -> bool:
    """It opens or closes an array: an element ends where its value ends, and begins with a separator or with its value."""
    return piece[-1:] in (b"[", b"{") or piece.lstrip()[:1] in (b"]", b"}")


def _blocks(data: bytes) -> list[bytes]:
    """Blocks of about one size that cut no character, so that text stays text."""
    cuts = [0]
    while len(data) - cuts[-1] > BLOCK:
        cut = cuts[-1] + BLOCK
        for back in range(4):
            if data[cut - back] & 0xC0 != 0x80:
                cut -= back
                break
        cuts.append(cut)
    return [data[start:end] for start, end in zip(cuts, [*cuts[1:], len(data)], strict=True)]


def _object(data: bytes, cuts: list[int]) -> None:
    """Goes over the members of the top level, one after the other."""
    at = _find_at(_START, data, 0).end()
    while True:
        name = _NAME.match(data, at)
        if name is None:
            return _ended(data, at)
        at = name.end()
        if data[at : at + 1] in (b"[", b"{"):
            at = _value(data, at + 1, name[1][1:-1], cuts)
        else:
            at = _find_at(_PLAIN, data, at).end()
        at = _after_space(data, at)
        if data[at : at + 1] != b",":
            return _ended(data, at)
        at += 1


def _ended(data: bytes, at: int) -> None:
    at = _after_space(data, at)
    if data[at : at + 1] != b"}" or _after_space(data, at + 1) != len(data):
        raise _Torn


def _value(data: bytes, start: int, name: bytes, cuts: list[int]) -> int:
    """An array or object that begins at `start`; the place behind it. Its elements become pieces if it is worth it."""
    inner: list[int] = [start]
    try:
        at = _elements(data, start, inner, MOST_PIECES - len(cuts))
    except _Torn:
        # What was complete before the tear can still be read.
        cuts += inner if name in ARRAYS else ()
        raise
    if name in ARRAYS or at - start > _BIG:
        end = at - 1
        while end > start and data[end - 1 : end].isspace():
            end -= 1
        cuts += [*inner, end] if end > start else inner
    return at


def _elements(data: bytes, at: int, cuts: list[int], most: int) -> int:
    """Cuts before each comma between elements; the place behind the bracket that closes them."""
    while len(cuts) < most:
        sign = _find_at(_NEXT, data, at)
        at = sign.end()
        if sign[1] in _OPEN:
            at = _skipped(data, at)
        elif sign[1] in _CLOSE:
            return at
        else:
            cuts.append(at - 1)
    raise _Torn


def _skipped(data: bytes, at: int) -> int:
    """Behind the bracket that closes the one before `at`."""
    depth = 1
    while depth:
        sign = _find_at(_BRACKET, data, at)
        at = sign.end()
        depth += 1 if sign[1] in _OPEN else -1
    return at


def _after_space(data: bytes, at: int) -> int:
    return _find_at(_SPACE, data, at).end()


def _find_at(pattern: re.Pattern[bytes], data: bytes, at: int) -> re.Match[bytes]:
    found = pattern.match(data, at)
    if found is None:
        raise _Torn
    return found
