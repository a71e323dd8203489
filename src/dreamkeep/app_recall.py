"""Part of app: recall. The verbs of `Keep` for finding again; wiring, no rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, Busy, NotDurable
from dreamkeep.event import rfc3339

if TYPE_CHECKING:
    from dreamkeep.index.store import Store
    from dreamkeep.recall.embed import Embedder
    from dreamkeep.recall.found import Found
    from dreamkeep.recall.query import Query
    from dreamkeep.recall.search import Meaning
    from dreamkeep.recall.vectors import Nearest

#: So many texts are embedded on the way when somebody searches: a third of a second. The rest is for `ingest` and `reindex`.
_ON_THE_WAY = 1_000
_ALL = 1 << 60
#: Around what is shown, so that a secret is seen whole before it is masked.
_AROUND = 2_000


class Hit(NamedTuple):
    """`text` stands so where `session`, `seq` and `n` say (secrets masked). `id`: of a note or an insight. `superseded_by`: the
    note that holds instead."""

    kind: str
    session: str
    seq: int
    n: int
    turn: str | None
    text: str
    at: str | None
    score: float
    project: str
    id: str = ""
    role: str = ""
    mark: str = ""
    superseded_by: str = ""


class Recalling(Part):
    """What `Keep` can do to find again."""

    _nearest_made: Nearest | None = None

    if TYPE_CHECKING:

        def take_in(self) -> None: ...

    def search(
        self,
        query: str,
        *,
        kinds: Sequence[str] = (),
        project: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        since: str | None = None,
        as_of: str | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """What was said and learned, best first. Any query is legal. `kinds`: message, insight, note; all, if none is named.
        `as_of`: what was known then."""
        from dreamkeep.app_asked import at_least_one
        from dreamkeep.index.searching import Within
        from dreamkeep.recall.query import understood
        from dreamkeep.recall.search import Search

        wanted = _checked_kinds(kinds)
        at_least_one(limit, "limit")
        since, until = moment(since, "since"), moment(as_of, "as_of", end=True)
        now = until or rfc3339(self._host.now())
        asked = understood(query, now)
        within = Within(project, agent, session, since, until)
        self.take_in()

        def found(store: Store) -> list[Hit]:
            meaning = self._meaning(store)
            with store.reading():
                hits = Search(store, asked, within, now, meaning).run(wanted, limit)
                texts = store.texts([one.no for one in hits if one.kind == "message"])
            return [self._shown(one, texts.get(one.no, one.text), asked) for one in hits]

        return self._ask(found)

    @staticmethod
    def places_of(query: str, text: str) -> list[tuple[int, int]]:
        """Where words of the query stand in the text: from, to."""
        from dreamkeep.index.words import terms
        from dreamkeep.recall.snippet import places

        return places(text, [form for term in terms(query) for form in term.forms])

    def embed(self, *, most: int = _ALL, progress: Callable[[int, int], None] | None = None) -> int:
        """Bring the vectors up to date, if an embedder is installed; how many texts that were."""
        from dreamkeep.recall.vectors import fill

        def fill_up(store: Store) -> int:
            # Loading a model takes longer than finding out that there is nothing to do.
            embedder = self._embedder() if store.unembedded_count() else None
            return fill(store, embedder, most, progress) if embedder else 0

        return self._ask(fill_up) if self.exists() else 0

    @staticmethod
    def _embedder() -> Embedder | None:
        from dreamkeep.recall.embed import installed

        return installed()

    def _meaning(self, store: Store) -> Meaning | None:
        embedder = self._embedder()
        if embedder is None:
            return None
        from dreamkeep.recall.search import Meaning
        from dreamkeep.recall.vectors import Nearest, fill

        try:
            if store.unembedded_count():
                fill(store, embedder, _ON_THE_WAY)
        except (Busy, NotDurable):
            pass  # somebody else is at it, or there is no room: what has no vector yet is found by its words
        if self._nearest_made is None:
            self._nearest_made = Nearest()
        return Meaning(embedder, self._nearest_made)

    def _shown(self, one: Found, text: str, asked: Query) -> Hit:
        from dreamkeep.recall.snippet import around, snippet

        words = [form for term in asked.terms for form in term.forms]
        if self.config["recall.redact"]:
            from dreamkeep.memory.redact import redact

            # Masked first and cut second: half a secret looks like none.
            text = redact(around(text, words, _AROUND))[0]
        shown = snippet(text, words)
        place = (one.session, one.seq, one.n, one.turn)
        return Hit(
            one.kind, *place, shown, one.at, round(one.score, 6), one.project, one.id, one.role, one.mark, one.superseded_by
        )


def _checked_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    from dreamkeep.recall.found import KINDS

    named = tuple(kinds) if not isinstance(kinds, str) else tuple(part.strip() for part in kinds.split(",") if part.strip())
    wrong = [kind for kind in named if kind not in KINDS]
    if wrong:
        raise BadUsage(f"unknown kind {wrong[0]!r}", where="kind", next=f"Use {', '.join(KINDS)}.")
    return named or KINDS


def moment(text: str | None, name: str, *, end: bool = False) -> str | None:
    """As records have their times, so that they compare as texts. A day alone begins at midnight, or (`end`) is meant whole."""
    if text is None:
        return None
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, AttributeError, OverflowError):
        raise BadUsage(
            f"{name} must be a date or a time, not {text!r}", where=name, next="Write 2026-05-31 or 2026-05-31T12:00:00Z."
        ) from None
    if end and len(text.strip()) == 10:
        moment += timedelta(days=1, seconds=-1)
    # Records have fractions of a second or not, and a point sorts before a Z.
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + ("Z" if end else "")
