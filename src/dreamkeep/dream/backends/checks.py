"""Pass A: a session goes to a backend in chunks, and each of its proposals is checked by itself. Pure.

A proposal counts only if its type is known, its task was a candidate, and its quote stands word for word in a message that was
given, and is somebody's own words (no summary, no copy, no recalled memory). Who said it and when is taken from that message,
never from the backend. A user or an agent must show it: tool output alone is no evidence, and gives a note no words
(tool_words.py). What fails is dropped and counted by its reason; the others are not affected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from dreamkeep.agents.facts import INJECTED, PARTIAL, SUMMARY, SYSTEM
from dreamkeep.dream.backends import steps
from dreamkeep.dream.backends.api import Answer, Given, GivenMessage, Proposal, TurnGiven, said_by
from dreamkeep.dream.backends.tool_words import ToolWords
from dreamkeep.errors import NoAnswer
from dreamkeep.memory.insight import AGENT, SUGGESTED, TOOL, TYPES, USER, Insight, Quote, insight_id, normalise
from dreamkeep.session.messages import Message
from dreamkeep.session.reading.own_answers import recalled
from dreamkeep.session.reading.packs import without_packs
from dreamkeep.session.reading.tools import find_words, texts_in
from dreamkeep.session.turns import TurnView

LONGEST_TEXT = 600
LONGEST_QUOTE = 2000
#: Messages with these marks are still somebody's own words.
_OWN = frozenset(("", PARTIAL))


class Checked(NamedTuple):
    insights: list[Insight]
    dropped: Counter[str]


class KnownInsights:
    """Finds duplicates: inside a reply, across chunks and across runs of one session."""

    def __init__(self, insights: Iterable[Insight] = ()) -> None:
        self._ids: set[str] = set()
        self._texts: set[tuple[str, str]] = set()
        for one in insights:
            self.add(one)

    def add(self, insight: Insight) -> None:
        self._ids.add(insight.id)
        self._texts.add((insight.type, normalise(insight.text)))

    def has(self, insight: Insight) -> bool:
        return insight.id in self._ids or (insight.type, normalise(insight.text)) in self._texts


def proposed(answer: object) -> list[object]:
    """The proposals of an answer: an `Answer`, or proposals in a list, a generator or another iterable. Anything else is no
    answer, so the chunk has to be read again."""
    proposals = answer.proposals if isinstance(answer, Answer) else answer
    if not isinstance(proposals, Iterable) or isinstance(proposals, (str, bytes, Mapping)):
        raise NoAnswer(
            f"the backend returned {type(proposals).__name__} instead of a list of proposals",
            where="backfill",
            next="Return an empty list if there is nothing to propose.",
        )
    listed = list(proposals)
    if listed and not any(isinstance(one, Proposal) for one in listed):
        raise NoAnswer(
            f"the backend returned a list of {type(listed[0]).__name__} instead of proposals",
            where="backfill",
            next="Make each a `dreamkeep.dream.backends.api.Proposal`.",
        )
    return listed


def checked(
    answer: object, given: Given, known: KnownInsights, *, run: str, redact: Callable[[str], str], trusted: bool = False
) -> Checked:
    """`answer`: what a backend gave (`proposed`).

    `trusted`: the backend is our own. It knows where an agent writes its user's answer into a tool's result, and never takes the
    words of a note from a tool's output.
    """
    found: list[Insight] = []
    dropped: Counter[str] = Counter()
    places = _places(given)
    proposals = proposed(answer)
    sound = [one for one in proposals if isinstance(one, Proposal) and _is_sound(one)]
    texts = [] if trusted else list(dict.fromkeys(one.text for one in sound))
    refused = dict(zip(texts, ToolWords(given).refused(texts), strict=True))
    answers = steps.answered(given) if texts else {}
    for proposal in proposals:
        made = _insight(proposal, given, places, run, redact, trusted, answers)
        if isinstance(made, str):
            dropped[made] += 1
        elif why := isinstance(proposal, Proposal) and refused.get(proposal.text):
            dropped[why] += 1
        elif known.has(made):
            dropped["duplicate"] += 1
        else:
            known.add(made)
            found.append(made)
    return Checked(found, dropped)


def _places(given: Given) -> dict[str, tuple[GivenMessage, TurnGiven]]:
    return {said.seq: (said, turn) for turn in given.turns if not turn.known for said in turn.messages}


def _insight(
    proposal: object,
    given: Given,
    places: Mapping[str, tuple[GivenMessage, TurnGiven]],
    run: str,
    redact: Callable[[str], str],
    trusted: bool,
    answers: Mapping[str, Sequence[str]],
) -> Insight | str:
    """The insight, or the reason why there is none."""
    if not isinstance(proposal, Proposal) or not _is_sound(proposal):
        return "malformed"
    if proposal.type not in TYPES:
        return "unknown type"
    if proposal.task and proposal.task not in {task.id for task in given.tasks}:
        return "unknown task"
    answered = proposal.author == USER if trusted else any(proposal.quote.strip() in one for one in answers.get(proposal.seq, ()))
    first = _quote(proposal.seq, proposal.quote, given, places, answered=answered)
    if isinstance(first, str):
        return first
    more = [_quote(seq, quote, given, places) for seq, quote in proposal.more]
    quotes = [first, *(one for one in more if isinstance(one, Quote))]
    if all(one.author == TOOL for one in quotes):
        return "only tool output shows it"
    said = places[proposal.seq][0]
    return Insight(
        insight_id(given.session, proposal.type, first.quote),
        proposal.type,
        redact(" ".join(proposal.text.split())),
        given.project,
        # Redacted before it is cut: half a secret looks like none.
        tuple(one._replace(quote=redact(one.quote)[:LONGEST_QUOTE]) for one in quotes),
        said.at,
        min(max(proposal.confidence, 0.0), 1.0),
        SUGGESTED,
        USER if first.author == USER else AGENT,
        "dream",
        proposal.task or (given.tasks[0].id if given.tasks else ""),
        run,
    )


def _is_sound(proposal: Proposal) -> bool:
    texts = (proposal.type, proposal.text, proposal.seq, proposal.quote, proposal.task)
    number = proposal.confidence
    return (
        all(isinstance(text, str) for text in texts)
        and 0 < len(proposal.text.strip()) <= LONGEST_TEXT
        and isinstance(number, (int, float))
        and math.isfinite(number)
        and isinstance(proposal.more, tuple)
        and all(isinstance(one, tuple) and len(one) == 2 and all(isinstance(x, str) for x in one) for one in proposal.more)
    )


def _quote(
    seq: str, words: str, given: Given, places: Mapping[str, tuple[GivenMessage, TurnGiven]], *, answered: bool = False
) -> Quote | str:
    place = places.get(seq)
    if place is None:
        return "a place that was not given"
    said, turn = place
    if said.mark not in _OWN or said.role in (SUMMARY, SYSTEM):
        return "not somebody's own words"
    exact = find_words(words, texts_in(said))
    if not exact:
        return "a quote that is not there"
    return Quote(given.session, seq, turn.id or None, exact[: 10 * LONGEST_QUOTE], *said_by(said, exact, answered=answered))


def quoted(words: str, message: Message) -> str:
    """The quote as it stands in a message, if that is somebody's own words; else ""."""
    own = message.mark in _OWN and message.role not in (SUMMARY, SYSTEM)
    return find_words(words, texts_in(_as_given(message))) if own else ""


def quote_of(session: str, message: Message, words: str) -> Quote:
    """Words of a message, as evidence."""
    said = _as_given(message)
    return Quote(session, said.seq, message.turn, words, *said_by(said, words))


def author_at(messages: Iterable[Message], seq: str, words: str) -> str:
    """The author of these words in the message with that seq; "" where they are not there."""
    here = (one for one in messages if _as_given(one).seq == seq and quoted(words, one))
    return next((said_by(_as_given(one), words)[0] for one in here), "")


# -- what a session holds


_CONTEXT = 2


def turns_given(
    turns: Sequence[TurnView], messages: Sequence[Message], first: int, last: int, read: Sequence[tuple[int, int]] = ()
) -> list[TurnGiven]:
    """The turns of a stretch of a journal (seqs `first` to `last`), with the last turns before it as context. `read`: parts of
    that stretch that were read already.

    A message that belongs to no turn goes with the turn before it.
    """
    states = {turn.id: turn.state for turn in turns}
    groups: list[tuple[str, list[Message]]] = []
    for message in messages:
        if message.seq > last:
            continue
        if groups and message.turn in (None, groups[-1][0]):
            groups[-1][1].append(message)
        else:
            groups.append((message.turn or "", [message]))
    before = [(0, first - 1), *read]
    split = [(id, group, all(_within(message.seq, before) for message in group)) for id, group in groups]
    new = {n for n, (_, _, known) in enumerate(split) if not known}
    if not new:
        return []
    ours = recalled(messages)
    return [
        TurnGiven(id, states.get(id, ""), tuple(_as_given(message, ours) for message in group), known)
        for n, (id, group, known) in enumerate(split)
        if not new.isdisjoint(range(n, n + _CONTEXT + 1))
    ]


def _within(seq: int, stretches: Sequence[tuple[int, int]]) -> bool:
    return any(first <= seq <= last for first, last in stretches)


def _as_given(message: Message, ours: Collection[tuple[int, int]] = ()) -> GivenMessage:
    """`ours`: places of answers of our own tools. They repeat what was learned before, so they are no evidence."""
    seq = f"{message.seq}.{message.n}" if message.n else str(message.seq)
    mark = message.mark or (INJECTED if message[:2] in ours else "")
    return GivenMessage(seq, message.role, without_packs(message.text), message.at, message.tool, mark)
