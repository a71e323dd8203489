"""The place in a text that answers a query best, word for word. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

_WORD = re.compile(r"[^\W_]+")
_LONGEST = 300
#: Of a long text this much is looked through.
_LOOK = 200_000
_STEM = 4
_WORDS = 60


def snippet(text: str, words: Collection[str], longest: int = _LONGEST) -> str:
    """A stretch of `text` as it stands there, at most `longest` signs: that with most of the words in it, and the first such."""
    if len(text) <= longest:
        return text
    start = _start(text, max(0, _best(text, words, longest) - longest // 5))
    return text[start : _end(text, start, longest)].strip()


def around(text: str, words: Collection[str], more: int) -> str:
    """The same place with `more` signs before and after it; short texts whole."""
    at = _best(text, words, _LONGEST) if len(text) > _LONGEST + 2 * more else 0
    return text[max(0, at - more) : at + _LONGEST + more] if len(text) > _LONGEST + 2 * more else text


def _best(text: str, words: Collection[str], longest: int) -> int:
    found = _places(text[:_LOOK], words)
    best_at, best = 0, 0
    for n, (at, _) in enumerate(found):
        value = len({word for place, word in found[n : n + _WORDS] if place < at + longest * 0.7})
        if value > best:
            best_at, best = at, value
    return best_at


def places(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """Where words of the query stand, to be highlighted: from, to."""
    stems, signs = _stems(words), _signs(words)
    found = [m.span() for m in _WORD.finditer(text) if _stem(m[0]) in stems]
    return sorted(found + [m.span() for sign in signs for m in re.finditer(re.escape(sign), text)])


def _places(text: str, words: Collection[str]) -> list[tuple[int, str]]:
    stems, signs = _stems(words), _signs(words)
    found = [(m.start(), stem) for m in _WORD.finditer(text) if (stem := _stem(m[0])) in stems]
    return sorted(found + [(m.start(), sign) for sign in signs for m in re.finditer(re.escape(sign), text)])


def _signs(words: Collection[str]) -> set[str]:
    """Pairs of signs of scripts without spaces, which stand inside of longer runs."""
    return {part for word in words for part in word.split() if not part.isascii() and len(part) <= 2}


def _stems(words: Collection[str]) -> set[str]:
    return {_stem(part) for word in words for part in _WORD.findall(word)}


def _stem(word: str) -> str:
    """Rough: a snippet that begins at another word is no harm."""
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
