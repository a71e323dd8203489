"""Answers as text for people. Captured text is data: control characters in it never reach the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dreamkeep.event import printable, readable_size
from dreamkeep.surfaces.cli import look
from dreamkeep.surfaces.cli.look import paint

#: The least width of a table's last column, however narrow the terminal is.
_LEAST_ROOM = 20


def json_text(data: Any) -> str:
    """One line of JSON. ASCII only, so that lone surrogates survive and any terminal can take it."""
    import json

    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(data), separators=(",", ":"))


def _without_nan(data: Any) -> Any:
    """NaN and the infinities have no place in JSON; their names have."""
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return str(data)
    if isinstance(data, dict):
        return {key: _without_nan(value) for key, value in data.items()}
    return [_without_nan(value) for value in data] if isinstance(data, list) else data


def out(said: str) -> None:
    """Print on stdout, for people. Captured text may have lone surrogates or characters that the terminal's encoding lacks;
    that must not fail. It may also have escape sequences; none of them gets through here."""
    encoding = sys.stdout.encoding or "utf-8"
    said = look.terminal_text(said, colours=look.of(sys.stdout).colours)
    print(said.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def complain(said: str) -> None:
    """Print one line on stderr, after our name. Secrets that it may quote are masked."""
    from dreamkeep.verbs.standalone import mask_secrets

    print(f"dreamkeep: {line(mask_secrets(said))}", file=sys.stderr, flush=True)


clean = printable
size = readable_size


def line(text: str) -> str:
    """As `clean`, on one line."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def counted(number: int, what: str) -> str:
    """ "1 session", "2 sessions"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def table(rows: list[list[str]], colours: Mapping[str, str] = MappingProxyType({})) -> str:
    """The first row is the head. On a terminal the last column is cut to the room that is left. `colours`: by a cell's text."""
    widths = [max(look.cells(row[n]) for row in rows) for n in range(len(rows[0]))]
    width = look.of(sys.stdout).width
    room = max(width - sum(widths[:-1]) - 2 * len(widths) + 2, _LEAST_ROOM) if width else None
    lines = []
    for n, row in enumerate(rows):
        cells = [*row[:-1], row[-1] if room is None else look.cut(row[-1], room)]
        padded = [cell + " " * (to - look.cells(cell)) for cell, to in zip(cells, widths, strict=True)]
        padded[-1] = cells[-1]
        shown = (paint(cell, "bold" if n == 0 else colours.get(cell.rstrip(), "")) for cell in padded)
        lines.append("  ".join(shown).rstrip())
    return "\n".join(lines)


def clock(at: str | None) -> str:
    return (at or "")[:16].replace("T", " ")


class ProgressLine:
    """A line on stderr that counts up. Nothing for work that is done at once. Without a terminal: a line every ten seconds."""

    def __init__(self, what: str, *, always: bool = False, of: str = "") -> None:
        """`of`: what is counted (default: bytes). `always`: also print where there is no terminal."""
        self._what = what
        self._of = of
        self._shows = look.moves(sys.stderr)
        self._always = always
        self._begun = time.monotonic()
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        over = done >= total
        if self._shows and ((now - self._begun > 0.3 and now - self._last > 0.1) or (over and self._last)):
            self._last = now
            share = 100 * done // total if total else 100
            print(
                f"\r{self._what} {share:3d} %  {self._many(done)} of {self._many(total)}",
                end="\n" if over else "",
                file=sys.stderr,
                flush=True,
            )
        elif self._always and not self._shows and now - self._last > 10 and now - self._begun > 5:
            self._last = now
            print(f"{self._what}: {self._many(done)} of {self._many(total)}", file=sys.stderr, flush=True)

    def _many(self, count: int) -> str:
        return f"{count} {self._of}" if self._of else size(count)
