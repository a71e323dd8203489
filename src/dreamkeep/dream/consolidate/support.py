"""Several insights that say one thing: who speaks for it, since when, in which words, and whether it is worth a note. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dreamkeep.dream.consolidate import fact_index as s
from dreamkeep.dream.consolidate.fact_index import Fact, FactIndex
from dreamkeep.memory import alike
from dreamkeep.memory import insight as i
from dreamkeep.memory.form import StatementForm, form
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import epoch_seconds

#: By itself no memory: it takes a second session that says so.
_WEAK = (i.EVIDENCE, i.HYPOTHESIS)
#: An agent's finding below this is a guess.
_SURE = 0.5
#: The first of these that somebody called it is what it is.
_KINDS = (
    *(i.CONSTRAINT, i.PREFERENCE, i.DECISION, i.PROCEDURE, i.CORRECTION, i.REJECTION, i.FACT, i.FINDING),
    *(i.FAILURE_FIX, i.OPEN_LOOP, i.EVIDENCE, i.HYPOTHESIS),
)


def form_of(shelf: FactIndex, about: Fact) -> StatementForm:
    return form(shelf.of(about.project).members[about][0].text)


def earliest(one: Insight) -> tuple[float, str, tuple[int, ...], str]:
    at = epoch_seconds(one.said_at)
    return (at if at is not None else -1.0, *s.place(one), one.id)


def foremost(one: Note) -> tuple[bool, bool, str, str]:
    """Of several notes of one fact: pinned, then touched by hand, then the oldest."""
    return not one.pinned, s.edit(one) is None, one.first_at or "", one.id


def find_support(members: Sequence[Insight]) -> Sequence[Insight]:
    """Who speaks for a fact: users, if one did."""
    return [one for one in members if one.author == i.USER] or members


def voice(members: Sequence[Insight]) -> Insight:
    """The last of them."""
    return max(find_support(members), key=earliest)


def wording(members: Sequence[Insight]) -> Insight:
    said = s.real(members) or members
    return min([one for one in said if one.author == i.USER] or said, key=earliest)


def kind_of(members: Sequence[Insight]) -> str:
    types = {one.type for one in s.real(members) or members}
    return next(kind for kind in _KINDS if kind in types)


def sessions(members: Iterable[Insight]) -> set[str]:
    return {quote.session for one in members for quote in one.evidence}


def said_by_user(members: Iterable[Insight]) -> bool:
    return any(one.author == i.USER for one in members)


def corroborated(members: Sequence[Insight]) -> bool:
    return said_by_user(members) or len(sessions(members)) >= 2 or any(one.state == i.CONFIRMED for one in members)


def worth(members: Sequence[Insight]) -> bool:
    """Whether it is a memory. A guess, a measurement or a command that was run is one when two sessions show it; a mere taking
    back never is."""
    if all(alike.only_takes_back(one.text) for one in members):
        return False
    if len(sessions(members)) >= 2:
        return True
    return any(one.type not in _WEAK and not _seen_once(one) and not _is_guess(one) for one in members)


def _seen_once(one: Insight) -> bool:
    """A command that an agent ran: that it worked once says little. What somebody told us, or a model read, is another thing."""
    return one.type == i.PROCEDURE and one.author == i.AGENT and one.source == "dream" and not one.by_model


def _is_guess(one: Insight) -> bool:
    return one.type == i.FINDING and one.author != i.USER and one.confidence < _SURE


def spoken(members: Iterable[Insight]) -> dict[tuple[str, bool], list[Insight]]:
    """By wording; what was said as a correction is another one."""
    found: dict[tuple[str, bool], list[Insight]] = {}
    for one in members:
        found.setdefault((one.text, one.type == i.CORRECTION), []).append(one)
    return found


def excluding(one: dict[tuple[str, bool], list[Insight]], other: dict[tuple[str, bool], list[Insight]]) -> str:
    """Why they can't both hold: said by whichever came later; of two at the same time, by either."""
    whys = set()
    for (text, corrects), said in one.items():
        for (its_text, its_corrects), its_said in other.items():
            if _some_later(said, its_said):
                whys.add(alike.contradicts(text, its_text, corrects=corrects))
            if _some_later(its_said, said):
                whys.add(alike.contradicts(its_text, text, corrects=its_corrects))
    return min(whys - {""}, default="")


def _some_later(some: list[Insight], others: list[Insight]) -> bool:
    """Whether one of these was said after one of those, or at the same time."""
    last, first = max(map(s.when, some)), min(map(s.when, others))
    if last != first:
        return last > first
    ends = [one for one in some if s.when(one) == last]
    return any(s.order(one, other) >= 0 for one in ends for other in others if s.when(other) == first)


def who(one: Insight) -> str:
    who = "the user" if one.author == i.USER else "an agent"
    return f"{who}, {one.said_at[:10]}" if one.said_at else who


def also_said(rests: Sequence[Insight]) -> str:
    count = len(sessions(rests))
    return f", said in {count} sessions" if count > 1 else ""


def shortly(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else flat[:119] + "…"
