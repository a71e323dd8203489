"""A compaction: what several voices told of it, and how it stands now. Pure. (Which signals speak of the same one: pairing.py.)

    started, progress ─► in_progress ─► completed           one compaction, one boundary, one count, whoever told of it
                              └───────► failed, cancelled   (a completion that comes later still counts: late)

Whether it is *active* is decided when somebody looks (`seen`): it is open, its owner lives, its deadline is not over. So nothing
has to be written for it to stop, and it can never stick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dreamkeep.agents.facts import Signal

Place = tuple[int, int]

#: How long after its last sign of life a compaction is believed to go on.
DEADLINE_S = 600

IN_PROGRESS, COMPLETED, FAILED, CANCELLED = "in_progress", "completed", "failed", "cancelled"
TURN_SETTLED, AGENT_DIED, TIMEOUT, SUPERSEDED, OWNER_GONE = "turn_settled", "agent_died", "timeout", "superseded", "owner_gone"

#: Who speaks. An agent's protocol has two voices that tell of the same compactions: updates, each of one compaction, and reports,
#: which say how deep the session is by now, or which session it went on in.
UPDATE, REPORT, TRANSCRIPT, HOOK, SCRAPED = "update", "report", "transcript", "hook", "scraped"
#: From the strongest to the weakest.
VOICES = (UPDATE, REPORT, TRANSCRIPT, HOOK, SCRAPED)
SOURCE = {UPDATE: "structured", REPORT: "structured", TRANSCRIPT: TRANSCRIPT, HOOK: HOOK, SCRAPED: SCRAPED}


class Moment(NamedTuple):
    """Where and when a signal came, and what was going on.

    `low`, `high`: between which places it happened. `since`: where the owner attached. `at`: when it was captured.
    """

    place: Place
    low: Place
    high: Place | None
    since: Place
    turn: str
    owner: str
    at: str


class CompactionSignal(NamedTuple):
    """What one voice says of a compaction. `phase`: started, or how it ended."""

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
    told: dict[str, CompactionSignal]
    opened_at: str | None
    closed_at: str | None
    #: Its last sign of life, from which its deadline counts.
    heard_at: str | None
    turn: str
    owner: str
    #: The native session ids that were named with it, and the one that it made, if it split the session.
    scopes: list[str]
    made: str = ""
    late: bool = False
    noop: bool = False
    historic: bool = False
    #: Only a log line told of it, though the agent has a protocol for it.
    fallback: bool = False
    #: The agent reported its depth afterwards, and had not counted it.
    passed: bool = False
    #: Where it was first heard that it is completed.
    done: Place | None = None
    #: Where its boundary is, and whose word that is.
    spot: Moment | None = None
    spot_voice: str = ""


class Compaction(NamedTuple):
    """A compaction as people see it now.

    `inferred`: its place is a log line's. `verified`: more than log lines say it happened. `in_place`: nobody tells of a split.
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


def seen(entity: Entity, session: str, now: str, alive: Callable[[str], bool]) -> Compaction:
    """As it looks now. What the strongest voice says is shown; where it says nothing, the next one's word."""
    told = [entity.told[voice] for voice in VOICES if voice in entity.told]
    sources = list(dict.fromkeys(SOURCE[voice] for voice in VOICES if voice in entity.told))
    state, closing, closed_at = entity.state, entity.closing, entity.closed_at
    deadline = _shown(entity.heard_at, DEADLINE_S)
    if state == IN_PROGRESS:
        if entity.owner and not alive(entity.owner):
            state, closing = FAILED, OWNER_GONE
        elif not in_time(entity.heard_at, now):
            state, closing, closed_at = FAILED, TIMEOUT, deadline
    if state == COMPLETED:
        closed_at = next((one.at for one in told if one.phase == COMPLETED and one.at), closed_at)
    done = entity.state == COMPLETED and not entity.noop
    confirmed = done and any(one.phase == COMPLETED for voice, one in entity.told.items() if voice != SCRAPED)
    return Compaction(
        id=f"{session}#c{entity.n}",
        state=state,
        active=state == IN_PROGRESS,
        closing=closing or None,
        sources=sources,
        before=next((one.before for one in told if one.before), None),
        after=next((one.after for one in told if one.after), None),
        opened_at=entity.opened_at,
        closed_at=closed_at,
        deadline=deadline,
        session=session,
        turn=entity.turn or None,
        reason=next((one.reason for one in told if one.reason), None),
        error=next((one.error for one in told if one.error), None),
        native_id=next((one.id for one in told if one.id), None),
        counted=counts(entity),
        late=entity.late,
        noop=entity.noop,
        historic=entity.historic,
        inferred=entity.spot_voice == SCRAPED,
        verified=confirmed,
        fallback=entity.fallback and sources == [SCRAPED],
        in_place=done and not entity.made and REPORT not in entity.told,
    )


def counts(entity: Entity) -> bool:
    return entity.state == COMPLETED and not entity.noop and not entity.historic


def is_exact(entity: Entity) -> bool:
    """An update and a transcript's record stand where it happened; the others speak somewhere near it."""
    return entity.spot_voice in (UPDATE, TRANSCRIPT)


# -- one signal and one compaction


def voice_of(signal: Signal) -> str:
    if signal.source == SOURCE[REPORT]:
        return UPDATE if signal.id and signal.depth is None else REPORT
    return signal.source if signal.source in VOICES else SCRAPED


def name_of(signal: Signal) -> str:
    """A report states where the session is by now: stated again, it is nothing new."""
    is_report = voice_of(signal) == REPORT and signal.depth is None
    return signal.id or (f"report:{signal.scope}" if is_report and signal.scope else "")


def made_by(signal: Signal) -> str:
    """The native session that a split made: no other compaction made the same one."""
    return signal.scope if signal.old_scope and signal.scope != signal.old_scope else ""


def changed_nothing(signal: Signal) -> bool:
    """Log lines say "done" of 25 messages before and 25 after; the others know what they say."""
    if signal.phase != COMPLETED or signal.source != SCRAPED:
        return signal.phase == "noop"
    before, after = signal.before or {}, signal.after or {}
    both = before.keys() & after.keys()
    return bool(both) and all(before[key] == after[key] for key in both)


def clash(entity: Entity, voice: str, signal: Signal) -> bool:
    """It cannot be the same one: this voice called it by another id, or it made another session."""
    own = entity.told.get(voice)
    made = made_by(signal)
    name = name_of(signal)
    return bool(own and own.id and name and own.id != name) or bool(made and entity.made and made != entity.made)


def may_tell(entity: Entity, voice: str, moment: Moment) -> bool:
    """Whether that voice can be speaking of it now.

    What the tap hears happens while it listens. Only a transcript tells of what was before anybody listened.
    """
    before_the_tap = voice in (UPDATE, SCRAPED) and entity.done is not None and entity.done < moment.since
    return not entity.noop and not before_the_tap and (voice == TRANSCRIPT or not entity.historic)


def misfit(entity: Entity, signal: Signal) -> tuple[bool, bool]:
    """How badly a signal fits, to choose between several: (nothing says the same session id, nothing says the same turn)."""
    named = {signal.scope, signal.old_scope} - {""}
    elsewhere = bool(named and entity.scopes and named.isdisjoint(entity.scopes))
    return elsewhere, not any(one.turn == signal.turn for one in entity.told.values() if one.turn)


def untold(entity: Entity, voice: str) -> bool:
    """Whether that voice has not yet said that it is completed."""
    return voice not in entity.told or entity.told[voice].phase != COMPLETED


def is_nameless(entity: Entity, voice: str) -> bool:
    """Whether that voice said that it is completed, and has no name for it."""
    return not untold(entity, voice) and not entity.told[voice].id


def with_word(entity: Entity, voice: str, signal: Signal, phase: str) -> Entity:
    old = entity.told.get(voice) or CompactionSignal("", None)
    word = CompactionSignal(
        phase,
        old.at if old.phase == phase and old.at else signal.at or old.at,
        old.id or name_of(signal),  # once given, a name stays: others may have heard it
        signal.turn or old.turn,
        signal.reason or old.reason,
        dict(signal.before) if signal.before else old.before,
        dict(signal.after) if signal.after else old.after,
        signal.error or old.error,
    )
    scopes = sorted({*entity.scopes, signal.scope, signal.old_scope} - {""})
    return entity._replace(told={**entity.told, voice: word}, scopes=scopes, made=entity.made or made_by(signal))


def same(entity: Entity, own: Entity) -> Entity | None:
    """Both in one, where what `own` saw starting is what others had told of before; None where the two cannot be the same."""
    told = dict(entity.told)
    for voice, word in own.told.items():
        other = told.get(voice)
        if other and (other.phase != "started" or (other.id and word.id and other.id != word.id)):
            return None
        told[voice] = word._replace(id=word.id or (other.id if other else ""))
    scopes = sorted({*entity.scopes, *own.scopes})
    return entity._replace(told=told, scopes=scopes, opened_at=earliest(own.opened_at, entity.opened_at))


def alive_at(entity: Entity, signal: Signal, moment: Moment) -> Entity:
    """A sign of life, by the earlier of the agent's clock and ours: neither an old file nor a wrong clock keeps it active."""
    return entity._replace(heard_at=earliest(signal.at, moment.at) or entity.heard_at)


def placed(entity: Entity, voice: str, moment: Moment) -> Entity:
    """Its boundary is where it was told first, as its messages are; a hook comes at any time, so everybody else knows better.

    On the wire an update stands where it happened; a log line is near it; a report comes after the whole turn.
    """
    old = entity.spot_voice
    better = (
        entity.spot is None
        or (old == HOOK and voice != HOOK)
        or (old in (SCRAPED, REPORT) and voice == UPDATE)
        or (old == REPORT and voice == SCRAPED and moment.place < entity.spot.place)
    )
    return entity._replace(spot=moment, spot_voice=voice) if better else entity


# -- times


def earliest(*times: str | None) -> str | None:
    known = [(moment, text) for text in times if (moment := _time(text))]
    return min(known)[1] if known else None


def in_time(heard_at: str | None, now: str | None) -> bool:
    """Also false when the clock was set back by more than the deadline, and when nobody knows the time: never stuck."""
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
        return {key: as_plain_data(one) for key, one in value.items()}
    return [as_plain_data(one) for one in value] if isinstance(value, (list, tuple)) else value


def entity_from(saved: Sequence[Any]) -> Entity:
    entity = Entity(*saved)
    told = {voice: CompactionSignal(*one) for voice, one in entity.told.items()}
    spot = moment_from(entity.spot) if entity.spot else None
    return entity._replace(told=told, done=_place(entity.done) if entity.done else None, spot=spot)


def moment_from(saved: Sequence[Any]) -> Moment:
    place, low, high, since, *rest = saved
    return Moment(_place(place), _place(low), _place(high) if high else None, _place(since), *rest)


def _place(saved: Sequence[int]) -> Place:
    return saved[0], saved[1]
