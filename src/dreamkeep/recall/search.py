"""Search: messages, insights and notes by their words and, with an embedder, by what they mean.

    query ─► words' own hits, nearest vectors ─► the best few hundred ─► what their neighbours and sessions add ─► one order
                       │ (filters come first)
             notes and insights by the part of the query they hold ─► what was superseded goes below what replaced it ─► cut

What can be found at all does not depend on a filter: a message that holds one of the words, or whose meaning is near; a note or
an insight likewise. So a filter only ever takes away. Scores are comparable within one answer, not between answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from dreamkeep.index.searching import SESSION_BITS, Head, Remembered, Within, session_of
from dreamkeep.index.store import Store
from dreamkeep.index.words import Term
from dreamkeep.recall import fuse
from dreamkeep.recall.embed import Array, Embedder
from dreamkeep.recall.fuse import HitFeatures
from dreamkeep.recall.hits import INSIGHT, MESSAGE, NOTE, FoundItem, is_within, learned, message
from dreamkeep.recall.query import Query
from dreamkeep.recall.replaced import settled
from dreamkeep.recall.vectors import Nearest, cosines, with_neighbours

#: A term in more messages than this (and than a twentieth of all) says little: it is left for when the others find too few.
_COMMON, _COMMON_MOST = 1_000, 20_000
#: From here on a meaning is near.
_NEAR = 0.45
#: Long messages have the lowest BM25, and often the answer: where meaning counts, too, more of them get a chance.
_CANDIDATES, _CANDIDATES_BY_MEANING, _NEAREST = 400, 600, 100
#: So many are looked at closely: more where a meaning counts, too, of which the first order knows little.
_JUDGED, _JUDGED_BY_MEANING = 100, 180
#: Messages that hold a rare term are enough to choose among.
_ENOUGH = 2_000
#: Of the best so many are looked at for being superseded.
_SETTLED = 50
#: So many messages on each side belong to what a message says.
_REACH = 2
_WORTH = {INSIGHT: 1.0, NOTE: 1.1}
_ALIKE = 0.75


class Meaning(NamedTuple):
    """What a search by meaning needs; `nearest` may be kept for the next one."""

    embedder: Embedder
    nearest: Nearest


class _Terms(NamedTuple):
    """`weighed`: with how much each says. `holders`: of those that not nearly everything holds, which messages do."""

    weighed: tuple[tuple[Term, float], ...]
    holders: Mapping[Term, frozenset[int]]

    @property
    def telling(self) -> tuple[Term, ...]:
        """The rarest, as many as find enough: what holds one of them is worth a look, and then all of them count."""
        chosen: list[Term] = []
        found = 0
        for term in sorted(self.holders, key=lambda term: len(self.holders[term])):
            found += len(self.holders[term])
            if chosen and found > _ENOUGH:
                break
            chosen.append(term)
        return tuple(chosen)

    @property
    def all(self) -> tuple[Term, ...]:
        return tuple(term for term, _ in self.weighed)

    @property
    def whole(self) -> float:
        return sum(weight for _, weight in self.weighed)


class Search:
    """One question, asked of one store at one moment."""

    def __init__(self, store: Store, query: Query, within: Within, now: str, meaning: Meaning | None) -> None:
        self._store = store
        self._query = query
        self._within = within
        self._now = now
        self._terms = _find_terms(store, query.terms)
        self._nearest = meaning.nearest if meaning else None
        self._asked: Array = None
        #: For each term that says something its weight, and which messages hold it.
        self._holders = [(weight, held) for term, weight in self._terms.weighed if (held := self._terms.holders.get(term))]
        if meaning and store.embedder()[0] == meaning.embedder.name:
            weights = self._word_weights(query.words)
            self._asked = meaning.embedder.ask([(word, weights[word]) for word in query.words])

    def run(self, kinds: Collection[str], limit: int) -> list[FoundItem]:
        found: dict[str, FoundItem] = {}
        if MESSAGE in kinds:
            found.update({one.key: one for one in self._messages(limit)})
        if INSIGHT in kinds or NOTE in kinds:
            found.update({one.key: one for one in self._remembered(kinds)})
        settled(self._store, found, self._within, kinds, max(_SETTLED, 3 * limit))
        return _ordered(found.values())[:limit]

    def _word_weights(self, words: Sequence[str]) -> dict[str, float]:
        known = {term.word: weight for term, weight in self._terms.weighed}
        others = [word for word in words if word not in known]
        total = self._store.indexed_messages() if others else 0
        counts = self._store.holding([Term((word,)) for word in others])
        return {**known, **{word: fuse.idf(total, count) for word, count in zip(others, counts, strict=True)}}

    # -- messages

    def _messages(self, limit: int) -> list[FoundItem]:
        words = self._by_words(limit)
        near = self._by_meaning(limit)
        nos = {*words, *near}
        if not nos:
            return []
        best = max(words.values(), default=0.0)
        part = {no: score / best for no, score in words.items()} if best > 0 else dict.fromkeys(words, 0.0)
        sessions = self._session_scores(nos)
        weights = fuse.WORDS if self._asked is None else fuse.HYBRID
        many = _JUDGED if self._asked is None else _JUDGED_BY_MEANING
        judged = self._first(part, near, sessions, weights)[: max(many, 3 * limit)]
        seen = self._score(judged, part, sessions, weights)
        top = max((score for score, _ in seen), default=0.0)
        if top <= 0:
            top = 1.0
        # On one scale with notes: the best message is worth the part of the query that it holds, or how near it is.
        scale = max(min(1.0, best / self._terms.whole) if self._terms.whole else 0.0, *near.values(), 0.05) / top
        return [message(head, max(score, 0.0) * scale) for score, head in seen]

    def _by_words(self, limit: int) -> dict[int, float]:
        wanted = max(_CANDIDATES if self._asked is None else _CANDIDATES_BY_MEANING, 4 * limit)
        telling = self._terms.telling
        found = self._store.best(telling, self._within, wanted)
        if len(found) < max(50, 4 * limit) and len(telling) < len(self._terms.all):
            found = self._store.best(self._terms.all, self._within, wanted)
        return dict(found)

    def _by_meaning(self, limit: int) -> dict[int, float]:
        if self._asked is None or self._nearest is None:
            return {}
        within = self._within
        timed = within.since is not None or within.until is not None

        def inside(nos: Sequence[int]) -> Collection[int]:
            return self._store.inside(nos, within)

        found = self._nearest.near(
            self._store,
            self._asked,
            least=_NEAR,
            limit=max(_NEAREST, 4 * limit),
            sessions=self._store.sessions_within(within),
            inside=inside if timed else None,
        )
        return {one.no: one.cosine for one in found}

    def _first(
        self, part: Mapping[int, float], near: Mapping[int, float], sessions: Mapping[int, float], weights: HitFeatures
    ) -> list[int]:
        """In an order that costs nothing to find, for choosing those that are worth more. Neighbours mostly have the numbers
        beside a message's own."""
        nos = {*part, *near}
        window = fuse.windows({no: range(no - _REACH, no + _REACH + 1) for no in nos}, self._holders)
        timely = self._timely({no >> SESSION_BITS for no in nos})
        first = {
            no: weights.words * part.get(no, 0.0)
            + weights.window * window[no]
            + (weights.meaning + weights.own) * near.get(no, 0.0)
            + weights.session * sessions.get(no >> SESSION_BITS, 0.0)
            + weights.time * timely.get(no >> SESSION_BITS, 0.0)
            for no in nos
        }
        return sorted(nos, key=lambda no: (-first[no], no))

    def _timely(self, sessions: Collection[int]) -> dict[int, float]:
        """By when they ended; of no interest where the query means no time."""
        if not self._query.spans:
            return {}
        return {no: fuse.timely(at, self._query.spans) for no, at in self._store.session_ends(sessions).items()}

    def _session_scores(self, nos: Collection[int]) -> dict[int, float]:
        """Of the sessions that these messages are of."""
        sizes = self._store.session_sizes({session_of(no) for no in nos})
        spreads = [(weight, Counter([no >> SESSION_BITS for no in held])) for weight, held in self._holders]
        return fuse.session_scores(spreads, sizes)

    def _score(
        self, nos: Sequence[int], part: Mapping[int, float], sessions: Mapping[int, float], weights: HitFeatures
    ) -> list[tuple[float, Head]]:
        around = self._store.around(nos, _REACH)
        window = fuse.windows(around, self._holders)
        meaning = self._meaning(around)
        found = []
        for head in self._store.heads(nos):
            together, own = meaning.get(head.no, (0.0, 0.0))
            seen = fuse.of_head(head, self._query, self._now)._replace(
                words=part.get(head.no, 0.0),
                window=window.get(head.no, 0.0),
                session=sessions.get(session_of(head.no), 0.0),
                meaning=together,
                own=own,
            )
            found.append((fuse.score(seen, weights) * fuse.worth(head), head))
        return found

    def _meaning(self, around: Mapping[int, Sequence[int]]) -> dict[int, tuple[float, float]]:
        """Of each message with the one before and the one after it; and alone."""
        if self._asked is None:
            return {}
        groups = {no: members[max(0, (at := members.index(no)) - 1) : at + 2] for no, members in around.items()}
        vectors = self._store.vectors({one for group in groups.values() for one in group})
        return with_neighbours(vectors, groups, self._asked)

    # -- notes and insights

    def _remembered(self, kinds: Collection[str]) -> list[FoundItem]:
        part: dict[int, float] = {}
        whole = self._terms.whole
        for term, weight in self._terms.weighed:
            for no in self._store.remembered_holding(term):
                part[no] = part.get(no, 0.0) + (weight / whole if whole else 0.0)
        if self._asked is not None and self._nearest is not None:
            for no, value in self._store_near().items():
                # What only sounds alike stays below what holds every word: an identifier's neighbour is not that identifier.
                part[no] = max(part.get(no, 0.0), _ALIKE * value)
        rows = self._store.remembered_rows(part)
        wanted = [row for row in rows if row.kind in kinds and is_within(self._store, row, self._within)]
        return [self._learned(row, part[row.no]) for row in wanted]

    def _store_near(self) -> dict[int, float]:
        """Notes and insights are few: all are compared exactly."""
        found = cosines(self._store.learned_vectors(), self._asked)
        return {-no: value for no, value in found.items() if value >= _NEAR}

    def _learned(self, row: Remembered, part: float) -> FoundItem:
        extra = 0.1 * fuse.timely(row.at, self._query.spans) + 0.03 * fuse.recency(row.at, self._now)
        return learned(row, part * _WORTH[row.kind] + extra)


def _ordered(found: Iterable[FoundItem]) -> list[FoundItem]:
    """Of equal ones the newer first; and nothing by chance, or by how an index was built."""
    hits = sorted(found, key=lambda one: (one.kind, one.session, one.seq, one.n, one.id))
    hits.sort(key=lambda one: one.at or "", reverse=True)
    hits.sort(key=lambda one: -round(one.score, 9))
    return hits


def _find_terms(store: Store, terms: Sequence[Term]) -> _Terms:
    """A word that nothing holds is looked for as the beginning of one: people type parts of names."""
    total = store.indexed_messages()
    common = min(max(_COMMON, total // 20), _COMMON_MOST)
    weighed: list[tuple[Term, float]] = []
    holders: dict[Term, frozenset[int]] = {}
    for term in terms:
        held = store.holders(term, common + 1)
        if not held and not term.prefix and len(term.forms) == 1 and len(term.word) > 2 and " " not in term.word:
            term = term._replace(prefix=True)
            held = store.holders(term, common + 1)
        many = len(held) > common
        weighed.append((term, fuse.idf(total, store.holding([term])[0] if many else len(held))))
        if not many:
            holders[term] = frozenset(held)
    return _Terms(tuple(weighed), holders if any(holders.values()) else dict.fromkeys((term for term, _ in weighed), frozenset()))
