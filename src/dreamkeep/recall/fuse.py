"""What is known of a candidate → one number. Pure. Why it is these, and what else was tried: docs/decisions/011-search.md.

words      BM25 of the message, as a part of the best one's
before     the same of the message before it: an answer has few words of the question; `after`: of the one after it
session    how much of the query its whole session holds
meaning    cosine of query and the message with its neighbours; 0 without an embedder
said_by    the query names whom the message is by
question   it asks something itself: who searches wants answers
length     up to some forty words, a longer message says more
time       it is of the time that the query means
recent     newer, all else being equal
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dreamkeep.index.searching import Head
from dreamkeep.recall.query import Query
from dreamkeep.recall.when import Span

#: `Name: …`, as chats that are written down begin.
_LABEL = re.compile(r"\s{0,8}([^\W\d_][\w.'’-]{0,39}(?: [^\W\d_][\w.'’-]{0,39}){0,2}):\s")
_LONG_WORDS = 40
_LETTERS_A_WORD = 5.5
_HALF_LIFE_DAYS = 90.0

#: How much the words of a role, or of what bears a mark, are worth: output of tools says much by accident, a summary says again.
ROLES: Mapping[str, float] = {"tool": 0.7, "reasoning": 0.75, "summary": 0.7, "system": 0.6}
MARKS: Mapping[str, float] = {"hook": 0.5, "synthetic": 0.5, "meta": 0.5, "rewound": 0.7}


class Seen(NamedTuple):
    words: float = 0.0
    before: float = 0.0
    after: float = 0.0
    session: float = 0.0
    meaning: float = 0.0
    said_by: float = 0.0
    question: float = 0.0
    length: float = 0.0
    time: float = 0.0
    recent: float = 0.0


#: Chosen on one half of the conversations that quality is measured on, rounded; with an embedder and without.
WORDS = Seen(1.0, 0.5, 0.2, 0.9, 0.0, 0.7, -0.25, 1.3, 0.4, 0.03)
HYBRID = Seen(0.8, 0.3, -0.1, 1.0, 2.5, 0.85, -0.3, 1.6, 0.4, 0.03)


def score(seen: Seen, weights: Seen) -> float:
    return sum(a * b for a, b in zip(seen, weights, strict=True))


def of_head(head: Head, query: Query, now: str) -> Seen:
    """What a message says of itself; its words and its neighbours come from elsewhere."""
    return Seen(
        said_by=float(_is_by(head, query)),
        question=float(head.ends.rstrip().endswith(("?", "？"))),
        length=length(head.length),
        time=float(during(head.at, query.spans)),
        recent=recency(head.at, now),
    )


def _is_by(head: Head, query: Query) -> bool:
    label = _LABEL.match(head.begins)
    return bool(label) and any(word in query.names for word in label[1].lower().split()) if label else False


def worth(head: Head) -> float:
    return ROLES.get(head.role, 1.0) * MARKS.get(head.mark, 1.0)


def length(letters: int) -> float:
    return min(1.0, math.log1p(letters / _LETTERS_A_WORD) / math.log1p(_LONG_WORDS))


def during(at: str | None, spans: Iterable[Span]) -> bool:
    return at is not None and any(start <= at < end for start, end in spans)


def recency(at: str | None, now: str) -> float:
    """From 1 (now) to 0; a time that can't be read is old."""
    days = _days(now) - _days(at or "")
    return 2.0 ** (-max(days, 0.0) / _HALF_LIFE_DAYS) if days < 1e5 else 0.0


def _days(at: str) -> float:
    """Good enough to tell which is older, and by how much about."""
    try:
        return int(at[:4]) * 365.25 + int(at[5:7]) * 30.44 + int(at[8:10])
    except ValueError:
        return -1e9


def idf(total: int, holding: int) -> float:
    return math.log1p((max(total, holding) - holding + 0.5) / (holding + 0.5))


def session_scores(spreads: Iterable[tuple[float, Mapping[int, int]]], sizes: Mapping[int, int]) -> dict[int, float]:
    """BM25 of whole sessions, each message that holds a term being one time; as parts of the best one's.

    `spreads`: for each term its weight, and in how many messages of each session it is."""
    mean = sum(sizes.values()) / len(sizes) if sizes else 1.0
    found: dict[int, float] = {}
    for weight, counts in spreads:
        for session, count in counts.items():
            if session in sizes:
                norm = 1.2 * (0.25 + 0.75 * sizes[session] / (mean or 1.0))
                found[session] = found.get(session, 0.0) + weight * count * 2.2 / (count + norm)
    most = max(found.values(), default=0.0)
    return {session: value / most for session, value in found.items()} if most > 0 else {}
