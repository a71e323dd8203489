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

from dreamkeep.index.searching import SESSION_BITS, Head, Within, session_of
from dreamkeep.index.store import Store
from dreamkeep.index.words import Term
from dreamkeep.recall import hits, ranking
from dreamkeep.recall.embed import Array, Embedder
from dreamkeep.recall.hits import INSIGHT, MESSAGE, NOTE, Hit, HitKey
from dreamkeep.recall.query import Query
from dreamkeep.recall.superseded import put_superseded_below
from dreamkeep.recall.vectors import Nearest, cosines, with_neighbours

#: A term in more messages than this (and than a twentieth of all) says little: it is left for when the others find too few.
_COMMON, _COMMON_MOST = 1_000, 20_000
#: From this cosine on a meaning is near.
_NEAR = 0.45
#: Long messages have the lowest BM25, and often the answer: where meaning counts too, more of them get a chance.
_CANDIDATES, _CANDIDATES_BY_MEANING, _NEAREST = 400, 600, 100
#: So many are scored in full: more where meaning counts too, of which the first order knows little.
_SCORED, _SCORED_BY_MEANING = 100, 180
#: Messages that hold a rare term are enough to choose among.
_ENOUGH = 2_000
#: So many of the best are checked for being superseded.
_CHECKED = 50
#: So many messages on each side belong to what a message says.
_REACH = 2
_WORTH = {INSIGHT: 1.0, NOTE: 1.1}
#: What only sounds alike stays below what holds every word: an identifier's neighbour is not that identifier.
_ALIKE = 0.75


class Meaning(NamedTuple):
    """What a search by meaning needs; `nearest` may be kept for the next one."""

    embedder: Embedder
    nearest: Nearest


class _Terms(NamedTuple):
    """`weighed`: each term with how much it says. `holders`: the messages that hold it, of terms that not nearly every message
    holds."""

    weighed: tuple[tuple[Term, float], ...]
    holders: Mapping[Term, frozenset[int]]

    @property
    def rarest(self) -> tuple[Term, ...]:
        """As many as find enough: what holds one of them is worth a look, and then all of them count."""
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
    def weight(self) -> float:
        return sum(weight for _, weight in self.weighed)


class Search:
    """One question, asked of one store at one moment."""

    def __init__(self, store: Store, query: Query, within: Within, now: str, meaning: Meaning | None) -> None:
        self._store = store
        self._query = query
        self._within = within
        self._now = now
        self._terms = _find_terms(store, query.terms)
        #: For each term that says something its weight, and which messages hold it.
        self._holders = [(weight, nos) for term, weight in self._terms.weighed if (nos := self._terms.holders.get(term))]
        self._nearest = meaning.nearest if meaning else None
        self._vector: Array = None
        if meaning and store.embedder()[0] == meaning.embedder.name:
            weights = self._word_weights(query.words)
            self._vector = meaning.embedder.ask([(word, weights[word]) for word in query.words])

    def run(self, kinds: Collection[str], limit: int) -> list[Hit]:
        found: dict[HitKey, Hit] = {}
        if MESSAGE in kinds:
            found.update({hit.key: hit for hit in self._find_messages(limit)})
        if INSIGHT in kinds or NOTE in kinds:
            found.update({hit.key: hit for hit in self._find_remembered(kinds)})
        put_superseded_below(self._store, found, self._within, kinds, max(_CHECKED, 3 * limit))
        return _ordered(found.values())[:limit]

    def read_texts(self, found: Sequence[Hit]) -> list[Hit]:
        """The hits with the texts of messages."""
        places = {hit.key: (hit.session, hit.seq, hit.n) for hit in found if hit.kind == MESSAGE}
        nos = self._store.numbers(set(places.values()))
        texts = self._store.texts(list(nos.values()))
        return [hit._replace(text=texts.get(nos.get(places[hit.key], 0), "")) if hit.key in places else hit for hit in found]

    def _word_weights(self, words: Sequence[str]) -> dict[str, float]:
        weights = {term.word: weight for term, weight in self._terms.weighed}
        others = [word for word in words if word not in weights]
        total = self._store.indexed_messages() if others else 0
        counts = self._store.holding([Term((word,)) for word in others])
        return {**weights, **{word: ranking.idf(total, count) for word, count in zip(others, counts, strict=True)}}

    # -- messages

    def _find_messages(self, limit: int) -> list[Hit]:
        bm25 = self._find_by_words(limit)
        near = self._find_by_meaning(limit)
        nos = {*bm25, *near}
        if not nos:
            return []
        best = max(bm25.values(), default=0.0)
        words = {no: score / best if best > 0 else 0.0 for no, score in bm25.items()}
        sessions = self._score_sessions(nos)
        weights = ranking.WORDS if self._vector is None else ranking.HYBRID
        many = max(_SCORED if self._vector is None else _SCORED_BY_MEANING, 3 * limit)
        promising = self._order_roughly(words, near, sessions, weights)[:many]
        scored = self._score(promising, words, sessions, weights)
        top = max((score for score, _ in scored), default=0.0)
        if top <= 0:
            top = 1.0
        # On one scale with notes: the best message is worth the part of the query that it holds, or how near it is.
        part = min(1.0, best / self._terms.weight) if self._terms.weight else 0.0
        scale = max(part, *near.values(), 0.05) / top
        return [hits.of_message(head, max(score, 0.0) * scale) for score, head in scored]

    def _find_by_words(self, limit: int) -> dict[int, float]:
        wanted = max(_CANDIDATES if self._vector is None else _CANDIDATES_BY_MEANING, 4 * limit)
        rarest = self._terms.rarest
        found = self._store.best(rarest, self._within, wanted)
        if len(found) < max(50, 4 * limit) and len(rarest) < len(self._terms.all):
            found = self._store.best(self._terms.all, self._within, wanted)
        return dict(found)

    def _find_by_meaning(self, limit: int) -> dict[int, float]:
        if self._vector is None or self._nearest is None:
            return {}
        within = self._within
        timed = within.since is not None or within.until is not None
        found = self._nearest.near(
            self._store,
            self._vector,
            least=_NEAR,
            limit=max(_NEAREST, 4 * limit),
            sessions=self._store.sessions_within(within),
            inside=(lambda nos: self._store.inside(nos, within)) if timed else None,
        )
        return {one.no: one.cosine for one in found}

    def _order_roughly(
        self,
        words: Mapping[int, float],
        near: Mapping[int, float],
        sessions: Mapping[int, float],
        weights: ranking.HitFeatures,
    ) -> list[int]:
        """An order that is cheap to find, to choose those that are worth a full score. Neighbours mostly have the numbers beside
        a message's own."""
        nos = {*words, *near}
        window = ranking.windows({no: range(no - _REACH, no + _REACH + 1) for no in nos}, self._holders)
        timely = self._timely_sessions({no >> SESSION_BITS for no in nos})
        rough = {
            no: weights.words * words.get(no, 0.0)
            + weights.window * window[no]
            + (weights.meaning + weights.own) * near.get(no, 0.0)
            + weights.session * sessions.get(no >> SESSION_BITS, 0.0)
            + weights.time * timely.get(no >> SESSION_BITS, 0.0)
            for no in nos
        }
        return sorted(nos, key=lambda no: (-rough[no], no))

    def _timely_sessions(self, sessions: Collection[int]) -> dict[int, float]:
        """By when they ended; empty where the query means no time."""
        if not self._query.spans:
            return {}
        return {no: ranking.timely(at, self._query.spans) for no, at in self._store.session_ends(sessions).items()}

    def _score_sessions(self, nos: Collection[int]) -> dict[int, float]:
        """The sessions that these messages are of."""
        sizes = self._store.session_sizes({session_of(no) for no in nos})
        spreads = [(weight, Counter([no >> SESSION_BITS for no in holding])) for weight, holding in self._holders]
        return ranking.session_scores(spreads, sizes)

    def _score(
        self, nos: Sequence[int], words: Mapping[int, float], sessions: Mapping[int, float], weights: ranking.HitFeatures
    ) -> list[tuple[float, Head]]:
        around = self._store.around(nos, _REACH)
        window = ranking.windows(around, self._holders)
        meaning = self._compare_meaning(around)
        found = []
        for head in self._store.heads(nos):
            together, own = meaning.get(head.no, (0.0, 0.0))
            features = ranking.of_head(head, self._query, self._now)._replace(
                words=words.get(head.no, 0.0),
                window=window.get(head.no, 0.0),
                session=sessions.get(session_of(head.no), 0.0),
                meaning=together,
                own=own,
            )
            found.append((ranking.score(features, weights) * ranking.worth(head), head))
        return found

    def _compare_meaning(self, around: Mapping[int, Sequence[int]]) -> dict[int, tuple[float, float]]:
        """The cosine of each message with the one before and the one after it, and alone."""
        if self._vector is None:
            return {}
        groups = {no: members[max(0, (at := members.index(no)) - 1) : at + 2] for no, members in around.items()}
        vectors = self._store.vectors({no for group in groups.values() for no in group})
        return with_neighbours(vectors, groups, self._vector)

    # -- notes and insights

    def _find_remembered(self, kinds: Collection[str]) -> list[Hit]:
        """By the part of the query that they hold. They are few, so all are compared exactly."""
        part: dict[int, float] = {}
        whole = self._terms.weight
        for term, weight in self._terms.weighed:
            for no in self._store.remembered_holding(term):
                part[no] = part.get(no, 0.0) + (weight / whole if whole else 0.0)
        if self._vector is not None and self._nearest is not None:
            for no, cosine in cosines(self._store.learned_vectors(), self._vector).items():
                if cosine >= _NEAR:
                    part[-no] = max(part.get(-no, 0.0), _ALIKE * cosine)
        found = []
        for row in self._store.remembered_rows(part):
            if row.kind in kinds and hits.is_within(self._store, row, self._within):
                extra = 0.1 * ranking.timely(row.at, self._query.spans) + 0.03 * ranking.recency(row.at, self._now)
                found.append(hits.of_remembered(row, part[row.no] * _WORTH[row.kind] + extra))
        return found


def _ordered(found: Iterable[Hit]) -> list[Hit]:
    """Of equal ones the newer first; and nothing by chance, or by how an index was built."""
    ordered = sorted(found, key=lambda hit: (hit.kind, hit.session, hit.seq, hit.n, hit.id))
    ordered.sort(key=lambda hit: hit.at or "", reverse=True)
    ordered.sort(key=lambda hit: -round(hit.score, 9))
    return ordered


def _find_terms(store: Store, terms: Sequence[Term]) -> _Terms:
    """A word that nothing holds is searched as the beginning of one: people type parts of names."""
    total = store.indexed_messages()
    common = min(max(_COMMON, total // 20), _COMMON_MOST)
    weighed: list[tuple[Term, float]] = []
    holders: dict[Term, frozenset[int]] = {}
    for term in terms:
        nos = store.holders(term, common + 1)
        if not nos and not term.prefix and len(term.forms) == 1 and len(term.word) > 2 and " " not in term.word:
            term = term._replace(prefix=True)
            nos = store.holders(term, common + 1)
        many = len(nos) > common
        weighed.append((term, ranking.idf(total, store.holding([term])[0] if many else len(nos))))
        if not many:
            holders[term] = frozenset(nos)
    return _Terms(tuple(weighed), holders if any(holders.values()) else dict.fromkeys((term for term, _ in weighed), frozenset()))
