"""Which lines of a user's message an agent wrote first, in whatever session: they were pasted. A line that a user typed before
any agent wrote it stays the user's own, however often agents repeat it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dreamkeep.agents.facts import ASSISTANT, USER
from dreamkeep.index.words import first_words

if TYPE_CHECKING:
    from dreamkeep.index.searching import Searchable

#: So many words of a line are looked for in a row, and so many messages that hold them are read.
_WORDS, _MOST = 12, 40


def find_heard(index: Searchable, lines: Iterable[str]) -> frozenset[str]:
    return frozenset(line for line in lines if _first_role(index, line) == ASSISTANT)


def _first_role(index: Searchable, line: str) -> str:
    """Who said it first: user, assistant, or "" for neither."""
    term = first_words(line, _WORDS)
    nos = index.holders(term, _MOST) if term else []
    said = [one for one in index.heads(nos) if one.role in (USER, ASSISTANT) and one.at] if nos else []
    texts = index.texts([one.no for one in said]) if said else {}
    holding = [one for one in said if line in texts.get(one.no, "")]
    return min(holding, key=lambda one: (one.at or "", one.role != USER)).role if holding else ""
