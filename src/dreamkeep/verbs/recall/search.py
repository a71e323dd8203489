"""Search: what was said and learned, found again. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.errors import BadUsage
from dreamkeep.event import rfc3339
from dreamkeep.verbs.capture import take_in
from dreamkeep.verbs.recall.similarity import open_meaning

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.recall.hits import FoundItem
    from dreamkeep.recall.query import Query

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

    def as_json(self) -> dict[str, Any]:
        """What is empty is left out, but for what the contract names."""
        shown = {**self._asdict(), "seq": f"{self.seq}.{self.n}" if self.n else self.seq}
        del shown["n"]
        return {key: value for key, value in shown.items() if value != "" or key in ("session", "text", "project")}


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
    from dreamkeep.recall.query import understood
    from dreamkeep.recall.search import Search
    from dreamkeep.verbs.arguments import check_positive, parse_moment

    wanted = _check_kinds(kinds)
    check_positive(limit, "limit")
    since, until = parse_moment(since, "since"), parse_moment(as_of, "as_of", end=True)
    now = until or rfc3339(context.host.now())
    asked = understood(query, now)
    within = Within(project, agent, session, since, until)
    take_in(context)

    def find_hits(store: Store) -> list[Hit]:
        meaning = open_meaning(context, store)
        with store.reading():
            hits = Search(store, asked, within, now, meaning).run(wanted, limit)
            texts = store.texts([one.no for one in hits if one.kind == "message"])
        return [_show_hit(context, one, texts.get(one.no, one.text), asked) for one in hits]

    return context.ask(find_hits)


def _show_hit(context: KeepContext, one: FoundItem, text: str, asked: Query) -> Hit:
    from dreamkeep.recall.snippet import around, snippet

    words = [form for term in asked.terms for form in term.forms]
    if context.config["recall.redact"]:
        from dreamkeep.secrets.redact import redact

        # Masked first and cut second: half a secret looks like none.
        text = redact(around(text, words, _AROUND))[0]
    shown = snippet(text, words)
    place = (one.session, one.seq, one.n, one.turn)
    return Hit(one.kind, *place, shown, one.at, round(one.score, 6), one.project, one.id, one.role, one.mark, one.superseded_by)


def _check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    from dreamkeep.recall.hits import KINDS

    named = tuple(kinds) if not isinstance(kinds, str) else tuple(part.strip() for part in kinds.split(",") if part.strip())
    wrong = [kind for kind in named if kind not in KINDS]
    if wrong:
        raise BadUsage(f"unknown kind {wrong[0]!r}", where="kind", next=f"Use {', '.join(KINDS)}.")
    return named or KINDS
