"""Writes a note into a file of the user's own (`note promote`): as a list item at its end, outside of our region. Every byte that
was there stays. The file is replaced as a whole, and only if it is still what was read."""

from __future__ import annotations

from typing import NamedTuple

from dreamkeep.dream.consolidate.known_files import statements
from dreamkeep.dream.pages.publish import replace_unchanged
from dreamkeep.dream.pages.retired import is_text
from dreamkeep.errors import BadUsage, Busy, Refused
from dreamkeep.host import Host, read_file
from dreamkeep.memory import page
from dreamkeep.memory.insight import normalise

_TRIES = 5


class Promoted(NamedTuple):
    """`added`: False where the file said it already."""

    path: str
    added: bool


def put_into(host: Host, root: str, path: str, note: str) -> Promoted:
    """`path`: absolute. A link is followed, and stays one."""
    real, words = host.real_path(path), " ".join(note.split())
    for _ in range(_TRIES):
        before = _read(host, root, real)
        text = before.decode("utf-8", "surrogateescape")
        if _line_of(text, words):
            return Promoted(real, False)
        after = with_item(text, words)
        if not _line_of(after, words) or page.parse(after).region != page.parse(text).region:
            way = "Close the comment or code block at its end, or write the note there yourself."
            raise Refused("the note would not be a list item there", where=real, next=way)
        if replace_unchanged(host, real, before, after.encode("utf-8", "surrogateescape")):
            return Promoted(real, True)
    raise Busy("the file keeps changing while it is written", where=real, next="Try again when nothing is writing to it.")


def line_of(host: Host, path: str, note: str) -> int:
    """The number of the line that says the note now; 0 for none."""
    return _line_of(read_file(host, path).decode("utf-8", "surrogateescape"), note)


def with_item(text: str, words: str) -> str:
    """The text with a list item at its end: right behind another item, else after an empty line."""
    end = page.line_end(text)
    last = text.rstrip("\r\n").rpartition("\n")[2]
    gap = "" if not text or text.endswith("\n") else end
    if last.strip() and not last.lstrip().startswith(("-", "*", "+")) and not text.endswith(("\n\n", "\r\n\r\n")):
        gap += end
    return f"{text}{gap}- {words}{end}"


def _line_of(text: str, words: str) -> int:
    """The line in which a text says exactly that; 0 for none."""
    found = [one.place for one in statements("", text) if normalise(one.text) == normalise(words)]
    return int(found[-1].rpartition(":")[2]) if found else 0


def _read(host: Host, root: str, real: str) -> bytes:
    at = host.stat(real)
    if at is None:
        raise BadUsage("no such file", where=real, next="Create the file first, or name another.")
    if page.is_in_keep(root, real):
        raise Refused("this file is dreamkeep's own", where=real, next="Name a file of the project: CLAUDE.md, AGENTS.md …")
    if not at.is_file or at.owner != host.user():
        what = "it is not a regular file" if not at.is_file else "it belongs to another user"
        raise Refused(what, where=real, next="Name a file of your own: CLAUDE.md, AGENTS.md …")
    data = read_file(host, real)
    problem = page.parse(data.decode("utf-8", "surrogateescape")).problem if is_text(data) else "it is not UTF-8 text"
    if problem:
        raise Refused(problem, where=real, next="Fix the file, or name another. Nothing was written.")
    return data
