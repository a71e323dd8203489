"""A candidate's features → one number. Pure. Why these, and what else was tried: docs/decisions/011-search.md.

words      BM25 of the message, as a part of the best one's
window     the part of the query that it holds together with its neighbours: an answer has few words of the question
session    how much of the query its whole session holds
meaning    cosine of the query and the message with its neighbours; 0 without an embedder
own        cosine of the query and the message alone: which of the neighbours it is
said_by    the query names the message's author
question   it asks something itself, and who searches wants answers
length     up to some forty words, a longer message says more
time       it is of the time that the query means
recent     newer, all else being equal
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from dreamkeep.index.searching import Head
from dreamkeep.recall.query import Query
from dreamkeep.recall.time_words import TimeSpan

#: `Name: …`, the beginning of a line in a written-down chat.
_LABEL = re.compile(r"\s{0,8}([^\W\d_][\w.'’-]{0,39}(?: [^\W\d_][\w.'’-]{0,39}){0,2}):\s")
_LONG_WORDS = 40
_LETTERS_A_WORD = 5.5
_HALF_LIFE_DAYS = 90.0
_LATE_DAYS = 7.0

#: How much the words of a role or of a mark are worth: a tool's output says much by accident, a summary only repeats.
ROLES: Mapping[str, float] = {"tool": 0.7, "reasoning": 0.75, "summary": 0.7, "system": 0.6}
MARKS: Mapping[str, float] = {"hook": 0.5, "synthetic": 0.5, "meta": 0.5, "rewound": 0.7}


class HitFeatures(NamedTuple):
    words: float = 0.0
    window: float = 0.0
    session: float = 0.0
    meaning: float = 0.0
    own: float = 0.0
    said_by: float = 0.0
    question: float = 0.0
    length: float = 0.0
    time: float = 0.0
    recent: float = 0.0


#: Chosen on one half of the conversations that quality is measured on, rounded; with an embedder and without.
WORDS = HitFeatures(0.7, 1.0, 0.6, 0.0, 0.0, 0.7, -0.25, 0.95, 1.4, 0.03)
HYBRID = HitFeatures(0.6, 1.0, 0.6, 2.3, 1.0, 0.95, -0.33, 1.25, 1.65, 0.03)


def score(features: HitFeatures, weights: HitFeatures) -> float:
    return float(sum(map(mul, features, weights)))


def of_head(head: Head, query: Query, now: str) -> HitFeatures:
    """What the message alone tells; the other features come from the index."""
    return HitFeatures(
        said_by=float(_is_by(head, query)),
        question=float(head.ends.rstrip().endswith(("?", "？"))),
        length=length(head.length),
        time=timely(head.at, query.spans),
        recent=recency(head.at, now),
    )


def _is_by(head: Head, query: Query) -> bool:
    label = _LABEL.match(head.begins)
    return label is not None and any(word in query.names for word in label[1].lower().split())


def worth(head: Head) -> float:
    return ROLES.get(head.role, 1.0) * MARKS.get(head.mark, 1.0)


def length(letters: int) -> float:
    return min(1.0, math.log1p(letters / _LETTERS_A_WORD) / math.log1p(_LONG_WORDS))


def timely(at: str | None, spans: Iterable[TimeSpan]) -> float:
    """1 inside a span, less the later it is after the span, and 0 before it."""
    best = 0.0
    for start, end in spans:
        if at is not None and start <= at:
            late = _days(at) - _days(end) if at >= end else 0.0
            best = max(best, math.exp(-max(late, 0.0) / _LATE_DAYS))
    return best


def recency(at: str | None, now: str) -> float:
    """From 1 (now) to 0. A time that can't be read is old."""
    days = _days(now) - _days(at or "")
    return 2.0 ** (-max(days, 0.0) / _HALF_LIFE_DAYS) if days < 1e5 else 0.0


def _days(at: str) -> float:
    """Good enough to tell which is older, and roughly by how much."""
    try:
        return int(at[:4]) * 365.25 + int(at[5:7]) * 30.44 + int(at[8:10])
    except ValueError:
        return -1e9


def idf(total: int, holding: int) -> float:
    return math.log1p((max(total, holding) - holding + 0.5) / (holding + 0.5))


def windows(around: Mapping[int, Sequence[int]], holders: Iterable[tuple[float, frozenset[int]]]) -> dict[int, float]:
    """How much of the query's weight each window holds, as a part of the best one's. `holders`: each term's weight, and the
    messages that hold it."""
    found = dict.fromkeys(around, 0.0)
    for weight, nos in holders:
        for no, members in around.items():
            if not nos.isdisjoint(members):
                found[no] += weight
    return _as_parts(found)


def session_scores(spreads: Iterable[tuple[float, Mapping[int, int]]], sizes: Mapping[int, int]) -> dict[int, float]:
    """BM25 of whole sessions, where each message that holds a term counts once; as parts of the best one's.

    `spreads`: for each term its weight, and how many messages of each session hold it."""
    mean = sum(sizes.values()) / len(sizes) if sizes else 1.0
    found: dict[int, float] = {}
    for weight, counts in spreads:
        for session, count in counts.items():
            if session in sizes:
                norm = 1.2 * (0.25 + 0.75 * sizes[session] / (mean or 1.0))
                found[session] = found.get(session, 0.0) + weight * count * 2.2 / (count + norm)
    return _as_parts(found)


def _as_parts(found: dict[int, float]) -> dict[int, float]:
    most = max(found.values(), default=0.0)
    return {key: value / most for key, value in found.items()} if most > 0 else found
