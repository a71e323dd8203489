"""A line that was kept with its secrets masked, known again by the line as it is. Pure.

How something was masked depends on the program's version, so nobody masks again to compare: a kept line *hides* another if they
are equally long and equal outside of the masks. But one that is nearly all mask would fit any other of its length: so what it
hides must be a secret, as far as can be told today.
"""

from __future__ import annotations

from collections.abc import Sequence

from dreamkeep.memory.masking import mask_line, runs_in
from dreamkeep.memory.redact import Span, key_line

_SEPARATOR = b" \t\r\n,"


def hides(kept: bytes, line: bytes) -> bool:
    """Whether `kept` is `line`, but for what is masked in it."""
    if len(kept) != len(line):
        return False
    runs = runs_in(kept)
    return bool(runs) and _without(kept, runs) == _without(line, runs)


class Hidden:
    """Lines that were kept, to find the one that is another with something masked in it."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        #: length → where something is masked → the rest → the line.
        self._known: dict[int, dict[tuple[Span, ...], dict[bytes, bytes]]] = {}
        for line in dict.fromkeys(lines):
            if runs := runs_in(line):
                self._known.setdefault(len(line), {}).setdefault(runs, {}).setdefault(_without(line, runs), line)

    def find(self, line: bytes, now: bytes | None = None) -> bytes | None:
        """A line that is nearly all mask fits any other of its length: so what it hides of this one must be a secret, as far as
        can be told today. `now`: this line as it is masked together with what is around it."""
        for runs, held in self._known.get(len(line), {}).items():
            if (kept := held.get(_without(line, runs))) is not None and _are_secrets(line, runs, now):
                return kept
        return None


def _are_secrets(line: bytes, runs: Sequence[Span], now: bytes | None) -> bool:
    left = _uncovered(runs, runs_in(now)) if now is not None else list(runs)
    if left:
        left = _uncovered(left, runs_in(_mask_piece(line)))
    # A key's lines: nothing but its neighbours tells what they are.
    ends = len(line.rstrip())
    return all(end == ends and key_line(line[start:end].decode("utf-8", "surrogateescape")) for start, end in left)


def _uncovered(runs: Sequence[Span], by: Sequence[Span]) -> list[Span]:
    """Both in order."""
    left, n = [], 0
    for start, end in runs:
        while n < len(by) and by[n][1] < end:
            n += 1
        if n == len(by) or by[n][0] > start:
            left.append((start, end))
    return left


def _mask_piece(piece: bytes) -> bytes:
    """A piece of a document has a separator before it, and is JSON without it."""
    inner = piece.strip(_SEPARATOR)
    begin = len(piece) - len(piece.lstrip(_SEPARATOR))
    return piece[:begin] + mask_line(inner) + piece[begin + len(inner) :]


def _without(line: bytes, runs: Sequence[Span]) -> bytes:
    pieces, at = [], 0
    for start, end in runs:
        pieces.append(line[at:start])
        at = end
    return b"\0".join([*pieces, line[at:]])
