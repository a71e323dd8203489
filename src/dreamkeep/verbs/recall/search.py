"""Search: what was said and learned, found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamkeep.errors import BadUsage
from dreamkeep.event import rfc3339
from dreamkeep.verbs.capture import take_in
from dreamkeep.verbs.recall.similarity import open_meaning

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.recall.hits import Hit
    from dreamkeep.recall.query import Query

#: Characters around what is shown, so that a secret is complete when it is masked.
_AROUND = 2_000


def search(
    context: KeepContext,
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
    from dreamkeep.index.searching import Within
    from dreamkeep.recall.query import read_query
    from dreamkeep.recall.search import Search
    from dreamkeep.verbs.arguments import check_positive, parse_moment

    wanted = _check_kinds(kinds)
    check_positive(limit, "limit")
    since, until = parse_moment(since, "since"), parse_moment(as_of, "as_of", end=True)
    now = until or rfc3339(context.host.now())
    asked = read_query(query, now)
    within = Within(project, agent, session, since, until)
    take_in(context)

    def find_hits(store: Store) -> list[Hit]:
        meaning = open_meaning(context, store)
        with store.reading():
            question = Search(store, asked, within, now, meaning)
            hits = question.read_texts(question.run(wanted, limit))
        return [_show_hit(context, hit, asked) for hit in hits]

    return context.ask(find_hits)


def _show_hit(context: KeepContext, hit: Hit, asked: Query) -> Hit:
    from dreamkeep.recall.snippet import snippet, widen_snippet

    words = [form for term in asked.terms for form in term.forms]
    text = hit.text
    if context.config["recall.redact"]:
        from dreamkeep.secrets.redact import redact

        # Masked first and cut second: half a secret looks like none.
        text = redact(widen_snippet(text, words, _AROUND))[0]
    return hit._replace(text=snippet(text, words), score=round(hit.score, 6))


def _check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    from dreamkeep.recall.hits import KINDS

    named = tuple(kinds) if not isinstance(kinds, str) else tuple(part.strip() for part in kinds.split(",") if part.strip())
    wrong = [kind for kind in named if kind not in KINDS]
    if wrong:
        raise BadUsage(f"unknown kind {wrong[0]!r}", where="kind", next=f"Use {', '.join(KINDS)}.")
    return named or KINDS
