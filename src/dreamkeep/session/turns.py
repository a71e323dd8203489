"""A turn: prompt → settle. A pure fold, one event at a time, in the order of seq; times are data.

    submitted ─► started ─► completed | failed | cancelled | interrupted

Whether an unsettled turn is still running or was interrupted is decided when somebody looks (`view_turn`): its owner holds a
lock or does not. So nothing has to be written when an owner dies, and a completion that arrives late simply wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dreamkeep.event import Event, Kind, text_in

if TYPE_CHECKING:
    from dreamkeep.agents.facts import TurnBegan, TurnSettled

SUBMITTED = "submitted"
STARTED = "started"
INTERRUPTED = "interrupted"
OPEN = "open"
#: How its owner can settle a turn.
SETTLED = ("completed", "failed", "cancelled", INTERRUPTED)
_FINAL = ("completed", "failed", "cancelled")


class TurnView(NamedTuple):
    """`owner`: the lock that proves that somebody works on it; "" if unknown. `n`: its place in the frame."""

    id: str
    seq: int
    state: str
    prompt: str
    submitted_at: str | None = None
    started_at: str | None = None
    settled_at: str | None = None
    reason: str | None = None
    owner: str = ""
    n: int = 0


#: Kinds that belong to a turn.
KINDS = frozenset((Kind.TURN_SUBMITTED, Kind.TURN_STARTED, Kind.TURN_SETTLED, Kind.TURN_RECORDED))


def step(turn: TurnView | None, seq: int, event: Event) -> TurnView:
    """The turn after one more of its events. Every event counts, even if damage changed their order."""
    body = event.body
    turn = turn or TurnView(text_in(body, "turn"), seq, SUBMITTED, "")
    if event.kind in (Kind.TURN_SUBMITTED, Kind.TURN_RECORDED):
        turn = turn._replace(
            seq=seq, prompt=text_in(body, "prompt"), submitted_at=event.at, owner=text_in(body, "owner", turn.owner or "")
        )
    if event.kind == Kind.TURN_STARTED:
        turn = turn._replace(started_at=turn.started_at or event.at)
        if turn.state == SUBMITTED:
            turn = turn._replace(state=STARTED)
    if event.kind in (Kind.TURN_SETTLED, Kind.TURN_RECORDED) and turn.state not in _FINAL:
        # The first report of the end counts, unless it is an interruption, which is only a guess.
        turn = turn._replace(state=text_in(body, "state"), settled_at=event.at, reason=text_in(body, "reason", "") or None)
    return turn


def began(turn: TurnView | None, place: tuple[int, int], fact: TurnBegan, owner: str) -> TurnView:
    """A turn that a transcript, a hook or the tap reports. If it is repeated, only what is new counts."""
    turn = turn or TurnView(fact.turn, place[0], STARTED, fact.prompt, fact.at, fact.at, n=place[1])
    return turn._replace(prompt=fact.prompt or turn.prompt, submitted_at=turn.submitted_at or fact.at, owner=turn.owner or owner)


def settled(turn: TurnView, fact: TurnSettled) -> TurnView:
    """The first report of the end counts, unless it is an interruption, which is only a guess. A failed turn may still
    succeed."""
    if fact.state == STARTED and turn.state == "completed":
        return turn._replace(state=STARTED, settled_at=None)  # what looked like the last answer was not
    if fact.state not in SETTLED or (turn.state in _FINAL and (turn.state, fact.state) != ("failed", "completed")):
        return turn
    if turn.state == INTERRUPTED == fact.state:
        return turn
    return turn._replace(state=fact.state, settled_at=fact.at, reason=fact.reason or None)


def view_turn(turn: TurnView, alive: Callable[[str], bool]) -> TurnView:
    """How it looks now: an unsettled turn whose owner is gone is interrupted; one without an owner is open."""
    if turn.state not in (SUBMITTED, STARTED):
        return turn
    if not turn.owner:
        return turn._replace(state=OPEN)
    if alive(turn.owner):
        return turn
    return turn._replace(state=INTERRUPTED, reason="its owner is gone")
