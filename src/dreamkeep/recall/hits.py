"""A hit: a message, note or insight that a search finds."""

from __future__ import annotations

from typing import Any, NamedTuple

from dreamkeep.index.searching import Head, Remembered, Within
from dreamkeep.index.store import Store
from dreamkeep.memory.insight import SUGGESTION

MESSAGE, INSIGHT, NOTE = "message", "insight", "note"
KINDS = (MESSAGE, INSIGHT, NOTE)

#: What a hit is, once: (kind, id), or for a message its kind and place.
HitKey = tuple[str, ...]


class Hit(NamedTuple):
    """`text` stands so where `session`, `seq` and `n` say (secrets masked). `id`: of a note or an insight. `superseded_by`: the
    note that holds instead. While a search runs, a message has no text yet (`Search.read_texts`)."""

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

    @property
    def key(self) -> HitKey:
        return (self.kind, self.id) if self.id else message_key(self.session, self.seq, self.n)

    @property
    def place(self) -> tuple[str, str]:
        """The session, and the place in it as `show` writes it: 7, or 7.2 where a frame holds several."""
        return self.session, f"{self.seq}.{self.n}" if self.n else str(self.seq)

    def as_json(self) -> dict[str, Any]:
        """What is empty is left out, but for what the contract names."""
        shown = {**self._asdict(), "seq": f"{self.seq}.{self.n}" if self.n else self.seq}
        del shown["n"]
        return {key: value for key, value in shown.items() if value != "" or key in ("session", "text", "project")}


def message_key(session: str, seq: int, n: int) -> HitKey:
    return MESSAGE, session, str(seq), str(n)


def of_message(head: Head, score: float) -> Hit:
    place = (head.session, head.seq, head.n, head.turn)
    return Hit(MESSAGE, *place, "", head.at, score, head.project, role=head.role, mark=head.mark)


def of_remembered(row: Remembered, score: float) -> Hit:
    """A note or an insight."""
    mark = SUGGESTION if row.state == SUGGESTION else ""
    seq, n = parse_place(row.place) or (0, 0)
    return Hit(row.kind, row.session, seq, n, row.turn, row.text, row.at, score, row.project, row.id, mark=mark)


def parse_place(place: str) -> tuple[int, int] | None:
    """`7.2` → (7, 2); None for what is no place of ours."""
    seq, _, n = place.partition(".")
    fits = seq.isdecimal() and (n or "0").isdecimal() and len(place) < 40
    return (int(seq), int(n or 0)) if fits else None


def is_within(store: Store, row: Remembered, within: Within) -> bool:
    if within.project is not None and row.project != within.project:
        return False
    if within.agent is not None and row.session.partition(":")[0] != within.agent:
        return False
    if within.session is not None and row.session != within.session and not store.rests_on(row.id, within.session):
        return False
    if within.since is not None and (row.at or "") < within.since:
        return False
    return within.until is None or (row.first_at or "") <= within.until
