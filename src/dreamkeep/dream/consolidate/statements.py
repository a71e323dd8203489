"""What somebody tells us outright, and not in a session that is dreamed: a user's note, an agent's tag. Pure.

It is an insight like any other, and goes the same way (consolidate.py): what it contradicts is superseded at once, what says the
same is strengthened. What follows from it names it as its `run`: so it is no hand on those notes, and is concluded again from
what was said.

What an agent tells is a suggestion: else whoever can make an agent read a file could write into the memory. It becomes a note
that waits for the user (state `suggested`), and nothing follows from it. Only where the agent quotes what the user typed, and its
text says no more than that quote, it counts at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.backends.checks import LONGEST_QUOTE, LONGEST_TEXT, quote_of, quoted
from dreamkeep.dream.consolidate import fact_index, support
from dreamkeep.dream.consolidate.consolidate import Decision, Similar, plan
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

#: How it came here: typed by the user; said by an agent that tags its own work.
BY_USER, BY_AGENT = "cli", "agent"
LONGEST_NOTE = 2000
#: An agent's own word is worth what a guess of a dream is; with a quote it is more.
_ITS_WORD, _QUOTED = 0.5, 0.7
_A_LITTLE_NS = 1_000_000
_NUMBER = re.compile(r"\d+")
_CODE = re.compile(r"`[^`]+`|\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_NOT = re.compile(r"\b(?:no|not|never|nobody|nothing|none|without|stop|avoid|instead|\w+n['’]t|dont|cannot)\b", re.IGNORECASE)


class StatedFacts(NamedTuple):
    """`note`: the one that stands for it now, "" where none does."""

    decisions: list[Decision]
    note: str


def by_user(text: str, kind: str, project: str, now: str) -> Insight:
    """Said anew each time: who says again what was superseded or taken back means it."""
    check_note(text, "note add")
    _check_type(kind, "--kind")
    id = insight_id(f"{BY_USER}:{project} {now}", kind, text)
    return Insight(id, kind, text, project, (), now, 1.0, CONFIRMED, USER, BY_USER)


def check_note(text: str, where: str) -> None:
    """Whichever way a user words a note."""
    if not has_visible_text(text) or len(text) > LONGEST_NOTE:
        raise BadUsage(
            f"a note is a text of 1 to {LONGEST_NOTE} characters, with at least one visible character",
            where=where,
            next="Give a text of that length.",
        )


class Ground(NamedTuple):
    """Where an agent says something. `said`: the message in which the quote stands."""

    project: str
    session: str = ""
    task: str = ""
    quote: Quote | None = None
    said: Message | None = None
    #: A subagent's session: who speaks to it as a user is an agent.
    among_agents: bool = False


def ground(summary: Summary, messages: Sequence[Message], quote: str, redact: Callable[[str], str]) -> Ground:
    """Where the quote stands: in the last message that has it. Without one the place alone: where the session ends now."""
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


def standing(quote: Mapping[str, Any], messages: Sequence[Message]) -> Mapping[str, Any] | None:
    """A quote of a session with the place of its words there: in its own turn if it can be. None where nobody says them. One
    without words says only that something was said there."""
    words = str(quote.get("quote", ""))
    if not words.strip():
        found = messages[-1:]
    else:
        found = [one for one in messages if quoted(words, one)] or [one for one in messages if words in redact(one.text)[0]]
    said = next((one for one in found if one.turn == quote.get("turn")), found[0] if found else None)
    return None if said is None else {**quote, "seq": _seq(said), "turn": said.turn}


def by_agent(type: str, text: str, where: Ground, *, now: str, author: str = AGENT, longest: int = LONGEST_TEXT) -> Insight:
    """The same again, in that session or on that day, is the same insight."""
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
    if not typed or quote is None or said is None or not says_no_more(text, _around(quote.quote, said.text)):
        return _suggestion(type, text, where, words, now)
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


def _suggestion(type: str, text: str, where: Ground, words: str, now: str) -> Insight:
    """Its id is no other insight's: a dream that finds the same words in that session finds them for the first time."""
    place = where.session or f"{where.project} {now[:10]}"
    id = insight_id(f"{SUGGESTION}:{place}", type, f"{words}\0{text}")
    at = earliest_time((where.said.at if where.said else None) or now, now)
    sure = _QUOTED if where.said else _ITS_WORD
    evidence = (where.quote,) if where.quote else ()
    return Insight(id, type, text, where.project, evidence, at, sure, SUGGESTED, AGENT, SUGGESTION, where.task)


def says_no_more(text: str, quote: str) -> bool:
    """Whether a statement has no telling word, command or number that the quote lacks, and does not turn it round."""
    told = alike.telling(text)
    numbers = set(_NUMBER.findall(text)) <= set(_NUMBER.findall(quote))
    codes = all(" ".join(code[0].strip("`").split()) in " ".join(quote.split()) for code in _CODE.finditer(text))
    return bool(told) and told <= alike.telling(quote) and numbers and codes and _denies(text) == _denies(quote)


def _around(quote: str, message: str) -> str:
    """The whole lines in which it stands."""
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


def as_newest(memory: Memory, said: Insight, now: str) -> Insight:
    """What is told now was told after all that is remembered: where a clock that ran ahead has dated what it may contradict later
    than now, it counts as said just after that. But what an agent quotes was said when it was said."""
    if said.source == BY_AGENT and said.said_at != now:
        return said
    return said._replace(said_at=_after_those_to_come(memory, said, (), now))


def hand_at(memory: Memory, found: Note, text: str, at: str, now: str) -> str:
    """The same for a hand on a note, which makes it say `text`: when that counts as done. `at`: when it was, by the clock."""
    said = Insight("", found.kind, text, found.project, (), at, 1.0, CONFIRMED, USER, "hand")
    rests = [memory.insights[one] for one in found.insights if one in memory.insights]
    return _after_those_to_come(memory, said, [*rests, said._replace(text=found.text)], now)


def _after_those_to_come(memory: Memory, said: Insight, instead_of: Iterable[Insight], now: str) -> str:
    """`instead_of`: what it takes the place of."""
    limit = epoch_seconds(now) or 0.0
    times = [one.said_at for one in memory.insights.values() if one.project == said.project]
    times += [step.at for one in memory.notes.values() if one.project == said.project for step in one.history]
    if all((epoch_seconds(at) or 0.0) < limit for at in times):
        return said.said_at or now  # so it is, but for a wrong clock
    project, about = fact_index.FactIndex(memory, [said]).of(said.project), fact_index.fact(said)
    others = {*project.sharing(about), *project.rivals(about), *map(fact_index.fact, instead_of)}
    known = [fact_index.when(one) for other in others for one in project.members.get(other, ()) if one.id != said.id]
    known += [bar.at for one in (about, *others) if (bar := project.find_veto(one))]
    last = max(known, default=0.0)
    return rfc3339(int(last * 1e9) + _A_LITTLE_NS) if last >= limit else said.said_at or now


def concluded(memory: Memory, said: Insight, now: str, *, keep: bool, similar: Similar | None = None) -> StatedFacts:
    """What follows from it. `keep`: it is to be a note whatever the rules think of it: a user asked for one."""
    if said.waits:
        return suggest(memory, said, keep=keep, reason="suggested by an agent")
    decisions = plan(memory, [said], now=now, run=said.id, similar=similar)
    standing = _standing(memory, said, decisions)
    if not standing and keep:
        id = _free_id(memory, said, {str(one.body["id"]) for one in decisions})
        body = {"id": id, "kind": said.type, "text": said.text, "project": said.project, "insights": [said.id]}
        decisions.append(Decision(Kind.NOTE_ADDED, {**body, "reason": "said by the user", "run": said.id}))
        standing = id
    return StatedFacts(decisions, standing)


def suggest(memory: Memory, said: Insight, *, keep: bool, reason: str, run: str = "") -> StatedFacts:
    """A note that waits for the user. None where a note holds that says it, where the user rejected it before, or where it is no
    memory by itself; suggested again, it is the same note."""
    about = fact_index.fact(said)
    holds = fact_index.FactIndex(memory).of(said.project).active(about)
    if holds:
        return StatedFacts([], holds[0].id)
    aside = [one for one in memory.notes.values() if one.is_aside and one.project == said.project]
    same = [one for one in aside if (fact_index.category(one.kind), alike.key(one.text)) == (about.drawer, alike.key(said.text))]
    if any(one.state == note.REJECTED for one in same) or not (keep or support.worth([said])):
        return StatedFacts([], "")
    body = {"insights": [said.id], "project": said.project, "run": run or said.id, "reason": reason}
    if same:
        return StatedFacts([Decision(Kind.NOTE_STRENGTHENED, {"id": same[0].id, **body})], same[0].id)
    id = _free_id(memory, said, set())
    new = {"id": id, "kind": said.type, "text": said.text, "state": note.SUGGESTED, **body}
    return StatedFacts([Decision(Kind.NOTE_ADDED, new)], id)


def edited(memory: Memory, id: str, now: str, *, similar: Similar | None = None) -> list[Decision]:
    """What follows from what a hand has just made of a note: it is the user's newest word."""
    found = memory.notes.get(id)
    step = fact_index.edit(found) if found else None
    if found is None or step is None or found.state != ACTIVE:
        return []
    said = fact_index.as_said(found, step)
    return plan(memory, [said], now=now, run=said.id, similar=similar)


def unpinned(memory: Memory, id: str, now: str, *, similar: Similar | None = None) -> list[Decision]:
    """What a pin held back: it is a note like others again, and may be overruled by now."""
    found = memory.notes.get(id)
    rests = [memory.insights[one] for one in found.insights if one in memory.insights] if found else []
    return plan(memory, rests, now=now, run=rests[0].id, similar=similar) if rests else []


def repeat_statement(memory: Memory, said: Insight) -> StatedFacts:
    """It was told before: nothing follows from it that did not follow then."""
    return StatedFacts([], _standing(memory, said, ()))


def _standing(memory: Memory, said: Insight, decisions: Iterable[Decision]) -> str:
    """The note that rests on it after all that; of several the project's own that is active."""
    ended = {Kind.NOTE_SUPERSEDED, Kind.NOTE_RETRACTED, Kind.NOTE_CLOSED, Kind.NOTE_EXPIRED}
    gone = {str(one.body["id"]) for one in decisions if one.kind in ended}
    resting: dict[str, str] = {one.id: one.project for one in memory.notes.values() if _rests(one, said)}
    for one in decisions:
        if one.kind in (Kind.NOTE_ADDED, Kind.NOTE_STRENGTHENED) and said.id in one.body["insights"]:
            resting[str(one.body["id"])] = str(one.body["project"])
    return min(resting, key=lambda id: (id in gone, resting[id] != said.project, id), default="")


def _rests(one: Note, said: Insight) -> bool:
    return one.state in (ACTIVE, note.SUGGESTED) and said.id in one.insights


def _free_id(memory: Memory, said: Insight, taken: set[str]) -> str:
    """It may have had its life, and was taken back: who says it again means it. It is another note."""
    id, life = note_id(said.project, said.type, said.text), 1
    while id in memory.notes or id in taken:
        life += 1
        id = note_id(said.project, said.type, f"{said.text}\0{life}")
    return id


def as_json(told: StatedFacts) -> list[dict[str, Any]]:
    """What became of notes by it, for people."""
    return [
        {"what": one.kind, "id": one.body["id"], "reason": one.body.get("reason", "")}
        for one in told.decisions
        if one.kind.startswith("note.")
    ]
