"""A query as it is understood: what to look for, and when it may have been. Pure; any text is legal."""

from __future__ import annotations

import re
from typing import NamedTuple

from dreamkeep.index.words import STOP, Term, terms
from dreamkeep.recall import time_words
from dreamkeep.recall.time_words import TimeSpan

_WORD = re.compile(r"[^\W_]+")
_LONGEST = 10_000
_MOST_WORDS = 64


class Query(NamedTuple):
    """`terms`: looked for in the index. `words`: as they were written, without stop words, for an embedder. `names`: all words in
    small letters, to be compared with authors' names. `spans`: the time that was meant."""

    terms: tuple[Term, ...]
    words: tuple[str, ...]
    names: frozenset[str]
    spans: tuple[TimeSpan, ...]


def read_query(text: str, now: str) -> Query:
    text = text[:_LONGEST]
    time = time_words.read(text, now)
    rest = text
    for phrase in time.relative:
        rest = re.sub(re.escape(phrase), " ", rest, flags=re.IGNORECASE)
    if not terms(rest):
        rest = text  # nothing but a time: then its words are all there is to look for
    words = list(dict.fromkeys(_WORD.findall(rest)))
    meaningful = [word for word in words if word.lower() not in STOP] or words
    names = frozenset(word.lower() for word in words)
    return Query(tuple(terms(rest)), tuple(meaningful[:_MOST_WORDS]), names, time.spans)
