"""Merging with a model: relates new insights to what is remembered already. Pure.

    new insights ─► the nearest notes of the project ─► merge request ─► operations ─► links between insights

A link is an ordinary event, `insight.linked`, and belongs to the run that made it. Consolidation (consolidate.py) decides about
notes and follows the links: two insights that say the same become one note with more evidence; of two that contradict each other
the later one holds. So an answer never deletes anything, and undoing a run undoes its links.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.backends.model.items import Operation, read_operations
from dreamkeep.dream.backends.model.reading import ModelReply
from dreamkeep.dream.backends.model.requests import Neighbour, Newcomer, Request, merge_request
from dreamkeep.event import Kind
from dreamkeep.memory import alike, note
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.memory import Memory

#: How many neighbours of an insight are shown; how many new insights share a request.
_MOST_NEIGHBOURS, _AT_ONCE = 5, 25
#: The least likeness of a neighbour: the share of common words, weighted by how rare they are.
_LEAST_LIKENESS = 0.12
#: States of notes that can be neighbours. Ended notes are history, but what a user rejected must not come back in other words.
_SHOWN = (note.ACTIVE, note.SUGGESTED, note.REJECTED)


#: Finds the statements of the user's own files that are near an insight, as `Case.files`.
NearFiles = Callable[[Insight], Mapping[str, tuple[str, str]]]


class Case(NamedTuple):
    """A new insight and its neighbours, by the name that the request gives them: a note's id, or `peer-1`. `refused`: the
    neighbours that the user rejected."""

    insight: Insight
    near: Mapping[str, Insight]
    shown: Newcomer
    refused: frozenset[str] = frozenset()
    #: Ids of the insight's own notes that wait for the user.
    waiting: tuple[str, ...] = ()
    #: Statements of the user's own files, by the name under which the request shows them: (place, text).
    files: Mapping[str, tuple[str, str]] = {}


def make_cases(memory: Memory, insights: Sequence[Insight], near_files: NearFiles = lambda one: {}) -> list[Case]:
    """Cases for the insights that have neighbours. The others are new without asking. `near_files`: finds what the user's own
    files say near an insight."""
    found: list[Case] = []
    for start in range(0, len(insights), _AT_ONCE):
        some = insights[start : start + _AT_ONCE]
        new = {one.id for one in some}
        cases = [_add_files(_make_case(memory, one, some[:n], new), near_files(one)) for n, one in enumerate(some)]
        found += [case for case in cases if case.near or case.files]
    return found


def _add_files(case: Case, files: Mapping[str, tuple[str, str]]) -> Case:
    beside = tuple(Neighbour(name, "a file of the user's", text, "") for name, (_, text) in files.items())
    return case._replace(files=files, shown=case.shown._replace(near=(*case.shown.near, *beside)))


def _make_case(memory: Memory, one: Insight, before: Sequence[Insight], new: Collection[str]) -> Case:
    """`before`: the new insights that were said earlier, its peers. `new`: ids of all new ones; a note that rests on one of
    them is shown as a peer only."""
    candidates = _find_notes(memory, one.project, new) | _find_peers(before, one.project)
    names = nearest(one.text, {name: candidate.shown.note for name, candidate in candidates.items()})
    near = {name: candidates[name].insight for name in names}
    shown = tuple(candidates[name].shown for name in names)
    refused = frozenset(name for name in names if candidates[name].is_refused)
    waiting = tuple(id for id in memory.rests.get(one.id, {}).get("notes", ()) if memory.notes[id].state == note.SUGGESTED)
    return Case(one, near, Newcomer(one.type, one.text, one.said_at or "", shown), refused, waiting)


class _NeighbourCandidate(NamedTuple):
    """What may be near a new insight: the insight behind it, and what a request shows of it."""

    insight: Insight
    shown: Neighbour
    is_refused: bool = False


def _find_notes(memory: Memory, project: str, new: Collection[str]) -> dict[str, _NeighbourCandidate]:
    """Notes of the project, by id. One whose first insight is gone, or is `new`, is left out."""
    found: dict[str, _NeighbourCandidate] = {}
    for one in memory.notes.values():
        if one.project == project and one.state in _SHOWN:
            first = next((memory.insights[id] for id in one.insights if id in memory.insights), None)
            if first is not None and first.id not in new:
                neighbour = Neighbour(one.id, one.kind, one.text, one.last_at or "")
                found[one.id] = _NeighbourCandidate(first, neighbour, one.state == note.REJECTED)
    return found


def _find_peers(before: Sequence[Insight], project: str) -> dict[str, _NeighbourCandidate]:
    named = {f"peer-{n}": one for n, one in enumerate(before, 1) if one.project == project}
    return {name: _NeighbourCandidate(one, Neighbour(name, one.type, one.text, one.said_at or "")) for name, one in named.items()}


def nearest(text: str, others: Mapping[str, str]) -> list[str]:
    """The names of the texts that share the most rare words with this one, best first."""
    words = {name: alike.telling(one) for name, one in others.items()}
    spread = Counter(word for found in words.values() for word in found)

    def weight(some: Iterable[str]) -> float:
        return math.fsum(math.log(1 + (1 + len(words)) / (1 + spread[word])) for word in some)

    own = alike.telling(text)
    likeness = {name: weight(own & found) / (weight(own | found) or 1.0) for name, found in words.items()}
    return sorted((name for name in others if likeness[name] >= _LEAST_LIKENESS), key=lambda name: (-likeness[name], name))[
        :_MOST_NEIGHBOURS
    ]


# -- asked and answered


def merge_requests(cases: Sequence[Case]) -> list[tuple[Request, Sequence[Case]]]:
    groups = [cases[start : start + _AT_ONCE] for start in range(0, len(cases), _AT_ONCE)]
    return [(merge_request([case.shown for case in group]), group) for group in groups]


def links(reply: ModelReply, cases: Sequence[Case]) -> list[tuple[str, dict[str, Any]]]:
    """Events, as (kind, body)."""
    operations = read_operations(reply.found, [{*case.near, *case.files} for case in cases])
    return [event for case, operation in zip(cases, operations, strict=True) for event in _make_events(case, operation)]


def _make_events(case: Case, operation: Operation) -> list[tuple[str, dict[str, Any]]]:
    if operation.operation not in ("same", "supersedes"):
        return []
    if operation.other in case.files:
        return [_make_file_event(case.insight, operation.operation, case.files[operation.other])]
    other = case.near[operation.other]
    if operation.other in case.refused:
        refused = [(Kind.INSIGHT_REJECTED, {"id": case.insight.id, "reason": "the user rejected a note that says the same"})]
        return refused if operation.operation == "same" else []
    if operation.operation == "supersedes" and (case.insight.said_at or "") < (other.said_at or ""):
        return []  # an earlier statement can't replace a later one
    body = {"id": case.insight.id, "op": operation.operation, "other": other.id, "reason": operation.why}
    found: list[tuple[str, dict[str, Any]]] = [(Kind.INSIGHT_LINKED, body)]
    if operation.operation == "same" and operation.other.startswith("n-"):
        over = {"by": operation.other, "reason": "another note says the same"}
        found += [(Kind.NOTE_SUPERSEDED, {"id": id, **over}) for id in case.waiting]
    if operation.operation == "same" and repeated(case.insight, other):
        # The user said it again, so it waits no longer for his decision.
        confirmed = {"reason": "typed again in another session", "on": [case.insight.id, other.id]}
        its_note = {"note": operation.other} if operation.other.startswith("n-") else {}
        found += [(Kind.INSIGHT_CONFIRMED, {"id": other.id, **confirmed, **its_note})] if other.waits else []
        found += [(Kind.INSIGHT_CONFIRMED, {"id": case.insight.id, **confirmed})] if case.insight.waits else []
    return found


def _make_file_event(one: Insight, operation: str, statement: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    """What the user's file says already needs no note. What contradicts the file is for the user to decide."""
    place, text = statement
    if operation == "same":
        return Kind.INSIGHT_EXPIRED, {"id": one.id, "reason": f"known from {place}", "known": place}
    return Kind.DREAM_SHELVED, {"insights": [one.id], "reason": f"{place} says otherwise: “{text[:200]}”"}


def repeated(one: Insight, other: Insight) -> bool:
    """Whether the user typed both, in different sessions. Pasting the same text twice doesn't count: somebody else wrote it."""
    sessions = [{quote.session for quote in each.evidence if quote.is_own} for each in (one, other)]
    return all(sessions) and sessions[0] != sessions[1]
