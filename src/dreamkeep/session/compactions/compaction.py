"""A compaction: what several speakers say about it, and how it stands now. Pure. (pairing.py finds the signals that mean one.)

    started, progress ─► in_progress ─► completed           one compaction, one boundary, one count, whoever reports it
                              └───────► failed, cancelled   (a completion that comes later still counts: late)

Whether it is *active* is decided when somebody asks (`view_compaction`): it is active while it is open, its owner lives, and its
deadline is not over. So nothing has to be written to end it, and it can never get stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dreamkeep.agents.facts import Signal

Place = tuple[int, int]

#: So long after its last sign of life a compaction counts as active.
DEADLINE_S = 600

IN_PROGRESS, COMPLETED, FAILED, CANCELLED = "in_progress", "completed", "failed", "cancelled"
TURN_SETTLED, AGENT_DIED, TIMEOUT, SUPERSEDED, OWNER_GONE = "turn_settled", "agent_died", "timeout", "superseded", "owner_gone"

#: Who speaks about compactions. An agent's protocol has two speakers for the same compactions: updates, each about one
#: compaction, and reports, which say how often the session was compacted by now, or in which session it goes on.
UPDATE, REPORT, TRANSCRIPT, HOOK, SCRAPED = "update", "report", "transcript", "hook", "scraped"
#: From the strongest to the weakest.
SPEAKERS = (UPDATE, REPORT, TRANSCRIPT, HOOK, SCRAPED)
SOURCE = {UPDATE: "structured", REPORT: "structured", TRANSCRIPT: TRANSCRIPT, HOOK: HOOK, SCRAPED: SCRAPED}


class Moment(NamedTuple):
    """Where and when a signal came, and what was going on.

    `low`, `high`: the places between which it happened. `since`: where the owner attached. `at`: when it was captured.
    """

    place: Place
    low: Place
    high: Place | None
    since: Place
    turn: str
    owner: str
    at: str


class CompactionStatement(NamedTuple):
    """What one speaker says about a compaction. `phase`: started, or how it ended."""

    phase: str
    at: str | None
    id: str = ""
    turn: str = ""
    reason: str = ""
    before: dict[str, int] | None = None
    after: dict[str, int] | None = None
    error: str = ""


class Entity(NamedTuple):
    """A compaction as the fold knows it."""

    n: int
    state: str
    closing: str
    statements: dict[str, CompactionStatement]
    opened_at: str | None
    closed_at: str | None
    #: Its last sign of life, from which its deadline counts.
    heard_at: str | None
    turn: str
    owner: str
    #: The native session ids that came with it, and the one that it made, if it split the session.
    scopes: list[str]
    made: str = ""
    late: bool = False
    noop: bool = False
    historic: bool = False
    #: Only a log line reported it, though the agent has a protocol for it.
    fallback: bool = False
    #: The agent reported its count afterwards, without this one.
    passed: bool = False
    #: Where its completion was first reported.
    done: Place | None = None
    #: Where its boundary is, and which speaker says so.
    spot: Moment | None = None
    spot_speaker: str = ""


class Compaction(NamedTuple):
    """A compaction as people see it now.

    `inferred`: its place is a log line's. `verified`: more than log lines report it. `in_place`: nobody reports a split.
    """

    id: str
    state: str
    active: bool
    closing: str | None
    sources: list[str]
    before: dict[str, int] | None
    after: dict[str, int] | None
    opened_at: str | None
    closed_at: str | None
    deadline: str | None
    session: str
    turn: str | None
    reason: str | None
    error: str | None
    native_id: str | None
    counted: bool
    late: bool
    noop: bool
    historic: bool
    inferred: bool
    verified: bool
    fallback: bool
    in_place: bool


def view_compaction(entity: Entity, session: str, now: str, alive: Callable[[str], bool]) -> Compaction:
    """How it looks now. The strongest speaker's word is shown; if it says nothing, the next one's."""
    statements = [entity.statements[speaker] for speaker in SPEAKERS if speaker in entity.statements]
    sources = list(dict.fromkeys(SOURCE[speaker] for speaker in SPEAKERS if speaker in entity.statements))
    state, closing, closed_at = entity.state, entity.closing, entity.closed_at
    deadline = _shown(entity.heard_at, DEADLINE_S)
    if state == IN_PROGRESS:
        if entity.owner and not alive(entity.owner):
            state, closing = FAILED, OWNER_GONE
        elif not in_time(entity.heard_at, now):
            state, closing, closed_at = FAILED, TIMEOUT, deadline
    if state == COMPLETED:
        closed_at = next((said.at for said in statements if said.phase == COMPLETED and said.at), closed_at)
    done = entity.state == COMPLETED and not entity.noop
    confirmed = done and any(said.phase == COMPLETED for speaker, said in entity.statements.items() if speaker != SCRAPED)
    return Compaction(
        id=f"{session}#c{entity.n}",
        state=state,
        active=state == IN_PROGRESS,
        closing=closing or None,
        sources=sources,
        before=next((said.before for said in statements if said.before), None),
        after=next((said.after for said in statements if said.after), None),
        opened_at=entity.opened_at,
        closed_at=closed_at,
        deadline=deadline,
        session=session,
        turn=entity.turn or None,
        reason=next((said.reason for said in statements if said.reason), None),
        error=next((said.error for said in statements if said.error), None),
        native_id=next((said.id for said in statements if said.id), None),
        counted=is_counted(entity),
        late=entity.late,
        noop=entity.noop,
        historic=entity.historic,
        inferred=entity.spot_speaker == SCRAPED,
        verified=confirmed,
        fallback=entity.fallback and sources == [SCRAPED],
        in_place=done and not entity.made and REPORT not in entity.statements,
    )


def is_counted(entity: Entity) -> bool:
    return entity.state == COMPLETED and not entity.noop and not entity.historic


def is_exact(entity: Entity) -> bool:
    """An update and a transcript's record stand where it happened; the others speak somewhere near it."""
    return entity.spot_speaker in (UPDATE, TRANSCRIPT)


# -- one signal and one compaction


def speaker_of(signal: Signal) -> str:
    if signal.source == SOURCE[REPORT]:
        return UPDATE if signal.id and signal.depth is None else REPORT
    return signal.source if signal.source in SPEAKERS else SCRAPED


def name_of(signal: Signal) -> str:
    """The compaction's own name. A report without a count only says where the session is: repeated, it is nothing new."""
    is_report = speaker_of(signal) == REPORT and signal.depth is None
    return signal.id or (f"report:{signal.scope}" if is_report and signal.scope else "")


def made_by(signal: Signal) -> str:
    """The native session that a split made: no other compaction made the same one."""
    return signal.scope if signal.old_scope and signal.scope != signal.old_scope else ""


def changed_nothing(signal: Signal) -> bool:
    """Log lines say "done" also of 25 messages before and 25 after. The other speakers mean what they say."""
    if signal.phase != COMPLETED or signal.source != SCRAPED:
        return signal.phase == "noop"
    before, after = signal.before or {}, signal.after or {}
    both = before.keys() & after.keys()
    return bool(both) and all(before[key] == after[key] for key in both)


def is_other(entity: Entity, speaker: str, signal: Signal) -> bool:
    """Whether the signal must mean another one: this speaker called it by another id, or it made another session."""
    own = entity.statements.get(speaker)
    made, name = made_by(signal), name_of(signal)
    return bool(own and own.id and name and own.id != name) or bool(made and entity.made and made != entity.made)


def may_speak_of(entity: Entity, speaker: str, moment: Moment) -> bool:
    """Whether that speaker can mean this compaction now.

    What the tap hears happens while it is attached. Only a transcript reports what happened before.
    """
    before_the_tap = speaker in (UPDATE, SCRAPED) and entity.done is not None and entity.done < moment.since
    return not entity.noop and not before_the_tap and (speaker == TRANSCRIPT or not entity.historic)


def misfit(entity: Entity, signal: Signal) -> tuple[bool, bool]:
    """How badly a signal fits, to choose between several: (no common session id, no common turn)."""
    named = {signal.scope, signal.old_scope} - {""}
    elsewhere = bool(named and entity.scopes and named.isdisjoint(entity.scopes))
    return elsewhere, not any(said.turn == signal.turn for said in entity.statements.values() if said.turn)


def awaits_completion(entity: Entity, speaker: str) -> bool:
    """Whether that speaker has not yet reported the completion."""
    return speaker not in entity.statements or entity.statements[speaker].phase != COMPLETED


def is_nameless(entity: Entity, speaker: str) -> bool:
    """Whether that speaker reported the completion, without a name."""
    return not awaits_completion(entity, speaker) and not entity.statements[speaker].id


def add_statement(entity: Entity, speaker: str, signal: Signal, phase: str) -> Entity:
    old = entity.statements.get(speaker) or CompactionStatement("", None)
    word = CompactionStatement(
        phase,
        old.at if old.phase == phase and old.at else signal.at or old.at,
        old.id or name_of(signal),  # a name stays: other speakers may have used it
        signal.turn or old.turn,
        signal.reason or old.reason,
        dict(signal.before) if signal.before else old.before,
        dict(signal.after) if signal.after else old.after,
        signal.error or old.error,
    )
    scopes = sorted({*entity.scopes, signal.scope, signal.old_scope} - {""})
    return entity._replace(statements={**entity.statements, speaker: word}, scopes=scopes, made=entity.made or made_by(signal))


def merge(entity: Entity, own: Entity) -> Entity | None:
    """Both in one: the start in `own` was of the compaction that others reported before. None if they cannot be the same."""
    statements = dict(entity.statements)
    for speaker, word in own.statements.items():
        other = statements.get(speaker)
        if other and (other.phase != "started" or (other.id and word.id and other.id != word.id)):
            return None
        statements[speaker] = word._replace(id=word.id or (other.id if other else ""))
    scopes = sorted({*entity.scopes, *own.scopes})
    return entity._replace(statements=statements, scopes=scopes, opened_at=earliest(own.opened_at, entity.opened_at))


def note_sign_of_life(entity: Entity, signal: Signal, moment: Moment) -> Entity:
    """Note when it was last alive, by the earlier of the agent's clock and ours. No old file or wrong clock keeps it active."""
    return entity._replace(heard_at=earliest(signal.at, moment.at) or entity.heard_at)


def place_boundary(entity: Entity, speaker: str, moment: Moment) -> Entity:
    """Its boundary is where it was reported first. A hook comes at any time, so every other speaker knows the place better.

    In the protocol, an update comes where it happened; a log line near that place; a report after the whole turn.
    """
    old = entity.spot_speaker
    better = (
        entity.spot is None
        or (old == HOOK and speaker != HOOK)
        or (old in (SCRAPED, REPORT) and speaker == UPDATE)
        or (old == REPORT and speaker == SCRAPED and moment.place < entity.spot.place)
    )
    return entity._replace(spot=moment, spot_speaker=speaker) if better else entity


# -- times


def earliest(*times: str | None) -> str | None:
    known = [(moment, text) for text in times if (moment := _time(text))]
    return min(known)[1] if known else None


def in_time(heard_at: str | None, now: str | None) -> bool:
    """Also false when the clock was set back by more than the deadline, or a time is unknown: so it never gets stuck."""
    heard, moment = _time(heard_at), _time(now)
    return heard is not None and moment is not None and abs(moment - heard) < timedelta(seconds=DEADLINE_S)


def _shown(text: str | None, later_s: int) -> str | None:
    try:
        moment = _time(text)
        return (moment + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0") if moment else None
    except OverflowError:
        return None


def _time(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
        return moment and (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


# -- to and from JSON


def as_plain_data(value: Any) -> Any:
    """Lists and dicts only: named tuples are not JSON to everybody."""
    if isinstance(value, Mapping):
        return {key: as_plain_data(inner) for key, inner in value.items()}
    return [as_plain_data(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def entity_from(saved: Sequence[Any]) -> Entity:
    entity = Entity(*saved)
    statements = {speaker: CompactionStatement(*fields) for speaker, fields in entity.statements.items()}
    spot = moment_from(entity.spot) if entity.spot else None
    return entity._replace(statements=statements, done=_place(entity.done) if entity.done else None, spot=spot)


def moment_from(saved: Sequence[Any]) -> Moment:
    place, low, high, since, *rest = saved
    return Moment(_place(place), _place(low), _place(high) if high else None, _place(since), *rest)


def _place(saved: Sequence[int]) -> Place:
    return saved[0], saved[1]
