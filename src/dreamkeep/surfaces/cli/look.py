"""How the terminal is to be used: colours, width, and what must never get there.

colours  on a terminal, unless NO_COLOR is set (to anything) or TERM is `dumb`; piped: never
width    the terminal's, or COLUMNS; piped: None, nothing is cut
plain    whatever the text is made of, only our own colours pass: a title with an escape sequence in it is shown, not obeyed
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple, TextIO

from dreamkeep.event import printable

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PLAIN = "\x1b[0m"
_OURS = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")
_NARROWEST = 40


class TerminalLook(NamedTuple):
    colours: bool
    width: int | None


def of(stream: TextIO) -> TerminalLook:
    """The look of a stream now: a tour replaces stdout while it runs."""
    terminal = stream.isatty()
    return decide(terminal, os.environ, _columns(stream) if terminal else 0)


def decide(terminal: bool, environment: Mapping[str, str], columns: int) -> TerminalLook:
    if not terminal:
        return TerminalLook(False, None)
    dumb = environment.get("TERM") == "dumb"
    told = environment.get("COLUMNS", "")
    width = int(told) if told.isascii() and told.isdigit() and int(told) else columns
    return TerminalLook(not dumb and not environment.get("NO_COLOR"), max(width, _NARROWEST) if width else None)


def moves(stream: TextIO) -> bool:
    """Whether a progress line can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def paint(text: str, colour: str) -> str:
    return f"\x1b[{_CODES[colour]}m{text}{_PLAIN}" if colour and text and of(sys.stdout).colours else text


def terminal_text(said: str, *, colours: bool) -> str:
    """The text without control characters, except line feeds, tabs and, with `colours`, our own colours."""
    if not colours:
        return "\n".join(line if line.isprintable() else printable(line) for line in said.split("\n"))
    return "".join(piece if _OURS.fullmatch(piece) else printable(piece) for piece in _OURS.split(said))


def cells(text: str) -> int:
    """How many cells the text takes: some scripts' characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_cell(c) for c in text)


def _cell(c: str) -> int:
    import unicodedata

    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def cut(text: str, room: int) -> str:
    """As much of the text as there is room for, with … if something is missing."""
    if cells(text) <= room:
        return text
    used, kept = 1, []
    for c in text:
        used += cells(c)
        if used > room:
            break
        kept.append(c)
    return "".join(kept).rstrip() + "…"
