"""Several insights that say the same: who supports it, since when, in which words, and whether it is worth a note. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dreamkeep.dream.consolidate.fact_index import Fact, FactIndex, compare, find_edit, place_of, seconds_of, without_edits
from dreamkeep.memory import alike
from dreamkeep.memory.form import StatementForm, form
from dreamkeep.memory.insight import (
    AGENT,
    CONFIRMED,
    CONSTRAINT,
    CORRECTION,
    DECISION,
    EVIDENCE,
    FACT,
    FAILURE_FIX,
    FINDING,
    HYPOTHESIS,
    OPEN_LOOP,
    PREFERENCE,
    PROCEDURE,
    REJECTION,
    USER,
    Insight,
)
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import epoch_seconds

#: Kinds that are no memory by themselves: a second session has to say the same.
_WEAK = (EVIDENCE, HYPOTHESIS)
#: An agent's finding with less confidence is a guess.
_SURE = 0.5
#: If insights of several kinds say the same, the first of these is the kind of the note.
_KINDS = (
    *(CONSTRAINT, PREFERENCE, DECISION, PROCEDURE, CORRECTION, REJECTION, FACT, FINDING),
    *(FAILURE_FIX, OPEN_LOOP, EVIDENCE, HYPOTHESIS),
)


def form_of(index: FactIndex, fact: Fact) -> StatementForm:
    return form(index.of(fact.project).members[fact][0].text)


def order_by_time(one: Insight) -> tuple[float, str, tuple[int, ...], str]:
    at = epoch_seconds(one.said_at)
    return (at if at is not None else -1.0, *place_of(one), one.id)


def order_of_notes(one: Note) -> tuple[bool, bool, str, str]:
    """Which of several notes of one fact stays: one that is pinned, then one that was edited, then the oldest."""
    return not one.pinned, find_edit(one) is None, one.first_at or "", one.id


def find_support(members: Sequence[Insight]) -> Sequence[Insight]:
    """The insights that count for a fact: the users', if there are any."""
    return [one for one in members if one.author == USER] or members


def find_last_support(members: Sequence[Insight]) -> Insight:
    """The last of those that count."""
    return max(find_support(members), key=order_by_time)


def find_wording(members: Sequence[Insight]) -> Insight:
    said = without_edits(members) or members
    return min([one for one in said if one.author == USER] or said, key=order_by_time)


def kind_of(members: Sequence[Insight]) -> str:
    types = {one.type for one in without_edits(members) or members}
    return next(kind for kind in _KINDS if kind in types)


def sessions_of(members: Iterable[Insight]) -> set[str]:
    return {quote.session for one in members for quote in one.evidence}


def has_user(members: Iterable[Insight]) -> bool:
    return any(one.author == USER for one in members)


def is_corroborated(members: Sequence[Insight]) -> bool:
    return has_user(members) or len(sessions_of(members)) >= 2 or any(one.state == CONFIRMED for one in members)


def is_worth_a_note(members: Sequence[Insight]) -> bool:
    """A guess, a measurement or a command that was run is worth a note when two sessions show it. What only takes something back
    never is."""
    if all(alike.only_takes_back(one.text) for one in members):
        return False
    if len(sessions_of(members)) >= 2:
        return True
    return any(one.type not in _WEAK and not _seen_once(one) and not _is_guess(one) for one in members)


def _seen_once(one: Insight) -> bool:
    """A command that an agent ran: that it worked once says little. What somebody said outright or a model read counts more."""
    return one.type == PROCEDURE and one.author == AGENT and one.source == "dream" and not one.by_model


def _is_guess(one: Insight) -> bool:
    return one.type == FINDING and one.author != USER and one.confidence < _SURE


def group_by_wording(members: Iterable[Insight]) -> dict[tuple[str, bool], list[Insight]]:
    """By their words. The same words said as a correction are a group of their own."""
    found: dict[tuple[str, bool], list[Insight]] = {}
    for one in members:
        found.setdefault((one.text, one.type == CORRECTION), []).append(one)
    return found


def find_exclusion(one: dict[tuple[str, bool], list[Insight]], other: dict[tuple[str, bool], list[Insight]]) -> str:
    """Why both can't hold, "" where they can. The later one has to exclude the earlier; with equal times, either the other."""
    whys = set()
    for (text, corrects), said in one.items():
        for (its_text, its_corrects), its_said in other.items():
            if _some_later(said, its_said):
                whys.add(alike.contradicts(text, its_text, corrects=corrects))
            if _some_later(its_said, said):
                whys.add(alike.contradicts(its_text, text, corrects=its_corrects))
    return min(whys - {""}, default="")


def _some_later(some: list[Insight], others: list[Insight]) -> bool:
    """Whether one of `some` was said after one of `others`, or at the same time."""
    last, first = max(map(seconds_of, some)), min(map(seconds_of, others))
    if last != first:
        return last > first
    ends = [one for one in some if seconds_of(one) == last]
    return any(compare(one, other) >= 0 for one in ends for other in others if seconds_of(other) == first)


def describe_speaker(one: Insight) -> str:
    speaker = "the user" if one.author == USER else "an agent"
    return f"{speaker}, {one.said_at[:10]}" if one.said_at else speaker


def describe_repetition(rests: Sequence[Insight]) -> str:
    count = len(sessions_of(rests))
    return f", said in {count} sessions" if count > 1 else ""


def shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else flat[:119] + "…"
