"""Insights that somebody states outright, and not in a session that is dreamed: a user's note, an agent's tag. Pure.

Such an insight is consolidated like any other (consolidate.py): what it contradicts is superseded at once, what says the same is
strengthened. What follows from it names it as its `run`, so it does not count as an edit of those notes, and is concluded again
from what was said.

What an agent states is a suggestion: else whoever can make an agent read a file could write into the memory. It becomes a note
that waits for the user (state `suggested`), and nothing follows from it. It counts at once only where the agent quotes what the
user typed, and its text says no more than that quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.backends.checks import LONGEST_QUOTE, LONGEST_TEXT, quote_of, quoted
from dreamkeep.dream.consolidate import fact_index, support
from dreamkeep.dream.consolidate.consolidate import Decision, plan
from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.event import Kind, rfc3339
from dreamkeep.memory import alike, note
from dreamkeep.memory.insight import (
    AGENT,
    CONFIRMED,
    SUGGESTED,
    SUGGESTION,
    TYPED,
    TYPES,
    USER,
    Insight,
    Quote,
    insight_id,
    note_id,
    task_id,
)
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import ACTIVE, Note
from dreamkeep.memory.page import has_visible_text
from dreamkeep.memory.score import earliest_time, epoch_seconds
from dreamkeep.secrets.redact import redact
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary

#: Sources: typed by the user; stated by an agent that tags its own work.
BY_USER, BY_AGENT = "cli", "agent"
LONGEST_NOTE = 2000
#: Confidence: an agent's own word is worth as much as a guess of a dream; with a quote it is worth more.
_ITS_WORD, _QUOTED = 0.5, 0.7
_A_LITTLE_NS = 1_000_000
_NUMBER = re.compile(r"\d+")
_CODE = re.compile(r"`[^`]+`|\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_NOT = re.compile(r"\b(?:no|not|never|nobody|nothing|none|without|stop|avoid|instead|\w+n['’]t|dont|cannot)\b", re.IGNORECASE)


class StatedFacts(NamedTuple):
    """What follows from a statement. `note`: the id of the one that stands for it now, "" where none does."""

    decisions: list[Decision]
    note: str


def user_insight(text: str, kind: str, project: str, now: str) -> Insight:
    """A new insight each time: a user who repeats what was superseded or taken back means it."""
    check_note(text, "note add")
    _check_type(kind, "--kind")
    id = insight_id(f"{BY_USER}:{project} {now}", kind, text)
    return Insight(id, kind, text, project, (), now, 1.0, CONFIRMED, USER, BY_USER)


def check_note(text: str, where: str) -> None:
    if not has_visible_text(text) or len(text) > LONGEST_NOTE:
        raise BadUsage(
            f"a note is a text of 1 to {LONGEST_NOTE} characters, with at least one visible character",
            where=where,
            next="Give a text of that length.",
        )


class Ground(NamedTuple):
    """What an agent's statement refers to. `said`: the message in which the quote stands."""

    project: str
    session: str = ""
    task: str = ""
    quote: Quote | None = None
    said: Message | None = None
    #: It is a subagent's session, so its user is an agent.
    among_agents: bool = False


def find_ground(summary: Summary, messages: Sequence[Message], quote: str, redact: Callable[[str], str]) -> Ground:
    """The last message that has the quote. Without a quote, the place where the session ends now."""
    task = task_id(summary.id)
    if not quote.strip():
        last = messages[-1] if messages else None
        place = Quote(summary.id, _seq(last) if last else "0", last.turn if last else None, "")
        return Ground(summary.project, summary.id, task, place)
    for message in reversed(messages):
        exact = quoted(quote, message)
        if exact:
            # Redacted before it is cut: half a secret looks like none.
            whole = quote_of(summary.id, message, exact)
            found = whole._replace(quote=redact(exact[: 10 * LONGEST_QUOTE])[:LONGEST_QUOTE])
            return Ground(
                summary.project, summary.id, task, found, message, any(kind == "subagent" for kind, _ in summary.lineage)
            )
    raise NotFound("those words are nowhere in the session", where="quote", next="Quote one message word for word.")


def locate_quote(quote: Mapping[str, Any], messages: Sequence[Message]) -> Mapping[str, Any] | None:
    """A quote with the place of its words in the session, in its own turn if possible. None where nobody says them. A quote
    without words refers to the end of the session."""
    words = str(quote.get("quote", ""))
    if not words.strip():
        found = messages[-1:]
    else:
        found = [one for one in messages if quoted(words, one)] or [one for one in messages if words in redact(one.text)[0]]
    said = next((one for one in found if one.turn == quote.get("turn")), found[0] if found else None)
    return None if said is None else {**quote, "seq": _seq(said), "turn": said.turn}


def agent_insight(type: str, text: str, where: Ground, *, now: str, author: str = AGENT, longest: int = LONGEST_TEXT) -> Insight:
    """The same statement again, in that session or on that day, is the same insight."""
    if not text or len(text) > longest:
        raise BadUsage(f"an insight is a text of 1 to {longest} characters", where="text", next="Give a text of that length.")
    _check_type(type, "type")
    if author not in (USER, AGENT):
        raise BadUsage(f"unknown author {author!r}", where="author", next=f"Use {AGENT} or {USER}.")
    quote, said = where.quote, where.said
    typed = said is not None and quote is not None and (quote.author, quote.origin) == (USER, TYPED) and not where.among_agents
    if author == USER and not typed:
        raise BadUsage(
            "only the user's own words count as the user's",
            where="author",
            next="Quote the user's message word for word and name its session, or leave out `author`.",
        )
    words = quote.quote if quote and quote.quote else text
    if not typed or quote is None or said is None or not says_no_more(text, _lines_around(quote.quote, said.text)):
        return _suggest_insight(type, text, where, words, now)
    return Insight(
        insight_id(where.session, type, words),
        type,
        text,
        where.project,
        (quote,) if quote else (),
        earliest_time((said.at if said else None) or now, now),
        _QUOTED,
        CONFIRMED if author == USER else SUGGESTED,
        author,
        BY_AGENT,
        where.task,
    )


def _suggest_insight(type: str, text: str, where: Ground, words: str, now: str) -> Insight:
    """It has an id of its own, so a dream that finds the same words in that session finds them for the first time."""
    place = where.session or f"{where.project} {now[:10]}"
    id = insight_id(f"{SUGGESTION}:{place}", type, f"{words}\0{text}")
    at = earliest_time((where.said.at if where.said else None) or now, now)
    sure = _QUOTED if where.said else _ITS_WORD
    evidence = (where.quote,) if where.quote else ()
    return Insight(id, type, text, where.project, evidence, at, sure, SUGGESTED, AGENT, SUGGESTION, where.task)


def says_no_more(text: str, quote: str) -> bool:
    """Whether a statement has no telling word, command or number that the quote lacks, and does not reverse it."""
    telling = alike.telling(text)
    numbers = set(_NUMBER.findall(text)) <= set(_NUMBER.findall(quote))
    codes = all(" ".join(code[0].strip("`").split()) in " ".join(quote.split()) for code in _CODE.finditer(text))
    return bool(telling) and telling <= alike.telling(quote) and numbers and codes and _denies(text) == _denies(quote)


def _lines_around(quote: str, message: str) -> str:
    """The whole lines of the message in which the quote stands."""
    at = message.find(quote)
    if at < 0:
        return quote  # its blanks or its secrets were changed
    end = message.find("\n", at + len(quote))
    return message[message.rfind("\n", 0, at) + 1 : end if end >= 0 else len(message)]


def _denies(text: str) -> bool:
    return _NOT.search(text) is not None


def _seq(message: Message) -> str:
    return f"{message.seq}.{message.n}" if message.n else str(message.seq)


def _check_type(type: str, where: str) -> None:
    if type not in TYPES:
        raise BadUsage(f"unknown kind {type!r}", where=where, next=f"Use one of {', '.join(TYPES)}.")


def date_as_newest(memory: Memory, said: Insight, now: str) -> Insight:
    """Dated after everything it may contradict. A clock that ran ahead may have dated that later than now; then the statement
    counts as said just after it. What an agent quotes keeps its time."""
    if said.source == BY_AGENT and said.said_at != now:
        return said
    return said._replace(said_at=_date_after_known(memory, said, (), now))


def date_edit(memory: Memory, found: Note, text: str, at: str, now: str) -> str:
    """The same for an edit that makes a note say `text`. `at`: when it was made, by the clock."""
    said = Insight("", found.kind, text, found.project, (), at, 1.0, CONFIRMED, USER, "hand")
    rests = [memory.insights[one] for one in found.insights if one in memory.insights]
    return _date_after_known(memory, said, [*rests, said._replace(text=found.text)], now)


def _date_after_known(memory: Memory, said: Insight, instead_of: Iterable[Insight], now: str) -> str:
    """`instead_of`: what it replaces."""
    limit = epoch_seconds(now) or 0.0
    times = [one.said_at for one in memory.insights.values() if one.project == said.project]
    times += [step.at for one in memory.notes.values() if one.project == said.project for step in one.history]
    if all((epoch_seconds(at) or 0.0) < limit for at in times):
        return said.said_at or now  # the usual case: no clock was wrong
    project, fact = fact_index.FactIndex(memory, [said]).of(said.project), fact_index.fact_of(said)
    others = {*project.find_sharing(fact), *project.find_rivals(fact), *map(fact_index.fact_of, instead_of)}
    known = [fact_index.seconds_of(one) for other in others for one in project.members.get(other, ()) if one.id != said.id]
    known += [veto.at for other in (fact, *others) if (veto := project.find_veto(other))]
    last = max(known, default=0.0)
    return rfc3339(int(last * 1e9) + _A_LITTLE_NS) if last >= limit else said.said_at or now


def conclude(memory: Memory, said: Insight, now: str, *, keep: bool) -> StatedFacts:
    """`keep`: it becomes a note even if consolidation makes none of it, because a user asked for one."""
    if said.waits:
        return suggest(memory, said, keep=keep, reason="suggested by an agent")
    decisions = plan(memory, [said], now=now, run=said.id)
    standing = _find_note(memory, said, decisions)
    if not standing and keep:
        id = _free_id(memory, said, {str(one.body["id"]) for one in decisions})
        body = {"id": id, "kind": said.type, "text": said.text, "project": said.project, "insights": [said.id]}
        decisions.append(Decision(Kind.NOTE_ADDED, {**body, "reason": "said by the user", "run": said.id}))
        standing = id
    return StatedFacts(decisions, standing)


def suggest(memory: Memory, said: Insight, *, keep: bool, reason: str, run: str = "") -> StatedFacts:
    """A note that waits for the user. None where an active note says the same, where the user rejected it before, or where it is
    no memory by itself. Suggested again, it is the same note."""
    fact = fact_index.fact_of(said)
    active = fact_index.FactIndex(memory).of(said.project).active(fact)
    if active:
        return StatedFacts([], active[0].id)
    aside = [one for one in memory.notes.values() if one.is_aside and one.project == said.project]
    meaning = fact.category, alike.key(said.text)
    same = [one for one in aside if (fact_index.category_of(one.kind), alike.key(one.text)) == meaning]
    if any(one.state == note.REJECTED for one in same) or not (keep or support.is_worth_a_note([said])):
        return StatedFacts([], "")
    body = {"insights": [said.id], "project": said.project, "run": run or said.id, "reason": reason}
    if same:
        return StatedFacts([Decision(Kind.NOTE_STRENGTHENED, {"id": same[0].id, **body})], same[0].id)
    id = _free_id(memory, said, set())
    new = {"id": id, "kind": said.type, "text": said.text, "state": note.SUGGESTED, **body}
    return StatedFacts([Decision(Kind.NOTE_ADDED, new)], id)


def conclude_edit(memory: Memory, id: str, now: str) -> list[Decision]:
    """What follows from the edit of a note: its new text is the user's newest word."""
    found = memory.notes.get(id)
    step = fact_index.find_edit(found) if found else None
    if found is None or step is None or found.state != ACTIVE:
        return []
    said = fact_index.edit_as_insight(found, step)
    return plan(memory, [said], now=now, run=said.id)


def conclude_unpin(memory: Memory, id: str, now: str) -> list[Decision]:
    """What a pin held back: the note is like others again, and may be overruled by now."""
    found = memory.notes.get(id)
    rests = [memory.insights[one] for one in found.insights if one in memory.insights] if found else []
    return plan(memory, rests, now=now, run=rests[0].id) if rests else []


def find_repeated(memory: Memory, said: Insight) -> StatedFacts:
    """For a statement that was made before: nothing new follows from it."""
    return StatedFacts([], _find_note(memory, said, ()))


def _find_note(memory: Memory, said: Insight, decisions: Iterable[Decision]) -> str:
    """The note that rests on it after these decisions; of several, an active one of the project."""
    ended = {Kind.NOTE_SUPERSEDED, Kind.NOTE_RETRACTED, Kind.NOTE_CLOSED, Kind.NOTE_EXPIRED}
    gone = {str(one.body["id"]) for one in decisions if one.kind in ended}
    resting: dict[str, str] = {one.id: one.project for one in memory.notes.values() if _rests_on(one, said)}
    for one in decisions:
        if one.kind in (Kind.NOTE_ADDED, Kind.NOTE_STRENGTHENED) and said.id in one.body["insights"]:
            resting[str(one.body["id"])] = str(one.body["project"])
    return min(resting, key=lambda id: (id in gone, resting[id] != said.project, id), default="")


def _rests_on(one: Note, said: Insight) -> bool:
    return one.state in (ACTIVE, note.SUGGESTED) and said.id in one.insights


def _free_id(memory: Memory, said: Insight, taken: set[str]) -> str:
    """If such a note existed before and has ended, the statement makes another one."""
    id, life = note_id(said.project, said.type, said.text), 1
    while id in memory.notes or id in taken:
        life += 1
        id = note_id(said.project, said.type, f"{said.text}\0{life}")
    return id


def as_json(stated: StatedFacts) -> list[dict[str, Any]]:
    """What changed in notes, for the user."""
    return [
        {"what": one.kind, "id": one.body["id"], "reason": one.body.get("reason", "")}
        for one in stated.decisions
        if one.kind.startswith("note.")
    ]
