"""The place in a text that answers a query best, word for word. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_WORD = re.compile(r"[^\W_]+")
_LONGEST = 300
#: Only the beginning of a long text is searched.
_SEARCHED = 200_000
_STEM = 4
_WORDS = 60


def snippet(text: str, words: Collection[str], longest: int = _LONGEST) -> str:
    """A stretch of `text` as it stands there, at most `longest` characters: the first one with most of the words in it."""
    if len(text) <= longest:
        return text
    start = _start(text, max(0, _best_start(text, words, longest) - longest // 5))
    return text[start : _end(text, start, longest)].strip()


def widen_snippet(text: str, words: Collection[str], more: int) -> str:
    """The same place with `more` characters before and after it; short texts whole."""
    if len(text) <= _LONGEST + 2 * more:
        return text
    at = _best_start(text, words, _LONGEST)
    return text[max(0, at - more) : at + _LONGEST + more]


def find_words(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """Where words of the query stand, to be highlighted: from, to."""
    return sorted((start, end) for start, end, _ in _matches(text, words))


def _best_start(text: str, words: Collection[str], longest: int) -> int:
    matches = sorted((start, word) for start, _, word in _matches(text[:_SEARCHED], words))
    best_start, most = 0, 0
    for n, (start, _) in enumerate(matches):
        count = len({word for place, word in matches[n : n + _WORDS] if place < start + longest * 0.7})
        if count > most:
            best_start, most = start, count
    return best_start


def _matches(text: str, words: Collection[str]) -> Iterator[tuple[int, int, str]]:
    """(from, to, the query's word)."""
    stems = {_stem(part) for word in words for part in _WORD.findall(word)}
    for match in _WORD.finditer(text):
        if (stem := _stem(match[0])) in stems:
            yield *match.span(), stem
    # Pairs of characters of scripts without spaces, which stand inside of longer runs.
    for pair in {part for word in words for part in word.split() if not part.isascii() and len(part) <= 2}:
        for match in re.finditer(re.escape(pair), text):
            yield *match.span(), pair


def _stem(word: str) -> str:
    """Rough: a snippet that begins at another word does no harm."""
    small = word.lower()
    return small[:-2] if len(small) > _STEM + 3 else small[:-1] if len(small) > _STEM and small.endswith("s") else small


def _start(text: str, at: int) -> int:
    """Not inside of a word, if one begins soon."""
    if at == 0 or not (text[at - 1].isalnum() and text[at].isalnum()):
        return at
    space = text.find(" ", at, at + 24)
    return space + 1 if space >= 0 else at


def _end(text: str, start: int, longest: int) -> int:
    end = min(len(text), start + longest)
    if end == len(text):
        return end
    space = text.rfind(" ", max(start + 1, end - 24), end)
    return space if space > start else end
