"""Something that was found, and whether it may be: what a message, a note or an insight looks like to a search."""

from __future__ import annotations

from typing import NamedTuple

from dreamkeep.index.searching import Head, Remembered, Within
from dreamkeep.index.store import Store
from dreamkeep.memory.insight import SUGGESTION

MESSAGE, INSIGHT, NOTE = "message", "insight", "note"
KINDS = (MESSAGE, INSIGHT, NOTE)


class FoundItem(NamedTuple):
    """`key`: what it is, once. `text`: of a note or an insight; a message's is read when it is shown."""

    key: str
    kind: str
    session: str
    seq: int
    n: int
    turn: str | None
    at: str | None
    score: float
    project: str
    id: str = ""
    role: str = ""
    mark: str = ""
    no: int = 0
    text: str = ""
    superseded_by: str = ""

    @property
    def place(self) -> tuple[str, str]:
        return self.session, f"{self.seq}.{self.n}" if self.n else str(self.seq)


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


def learned(row: Remembered, score: float) -> FoundItem:
    numbers = numbers_of(row.place) or (0, 0)
    place = (row.session, *numbers, row.turn, row.at)
    mark = SUGGESTION if row.state == SUGGESTION else ""
    return FoundItem(f"{row.kind}:{row.id}", row.kind, *place, score, row.project, row.id, mark=mark, text=row.text)


def message(head: Head, score: float) -> FoundItem:
    key = f"{MESSAGE}:{head.no}"
    place = (head.session, head.seq, head.n, head.turn, head.at)
    return FoundItem(key, MESSAGE, *place, score, head.project, role=head.role, mark=head.mark, no=head.no)


def numbers_of(place: str) -> tuple[int, int] | None:
    """`7.2` → (7, 2); None for what nobody of ours wrote."""
    seq, _, n = place.partition(".")
    fits = seq.isdecimal() and (n or "0").isdecimal() and len(place) < 40
    return (int(seq), int(n or 0)) if fits else None
