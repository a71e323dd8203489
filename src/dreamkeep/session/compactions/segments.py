"""Segments: the stretches of a session between boundaries of its context. A pure fold over facts; pairing.py finds the
compactions.

    place    1 ………… 11  12 ………… 40  41 …………
             segment #1  segment #2  segment #3 (current)
                         ▲           ▲
                         boundary    boundary: the place of the first message behind it; every place is in exactly one segment

A place is (frame's seq, number in the frame), written `seq` or `seq.n`. Boundaries are computed and never stored, so a live
view and a rebuilt one cannot differ. A later fact may show that a boundary lies among messages that we have already, or
elsewhere. So the segment of a message is a question for reading time (`segment_at`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.agents.facts import Boundary, Fact, Owner, Signal, TurnBegan, TurnSettled
from dreamkeep.session.compactions import compaction as c
from dreamkeep.session.compactions.compaction import Compaction, Moment, Place
from dreamkeep.session.compactions.pairing import Pairing

_FIRST: Place = (1, 0)
# A transcript that is read later repeats turns: those that were settled lately must not look open again.
_SETTLED_REMEMBERED = 64

EXACT, INTERVAL, HISTORIC = "exact", "interval", "historic"


class Segment(NamedTuple):
    """`closed_seq` is its last place; a seq without a number means the whole frame.

    `precision`: interval when one of its ends is only known to lie between two places (`opened_between`, `closed_between`).
    `carried_turn` began before this segment and goes on in it: its prompt is shown here, too. `continued_turn` goes on after it.
    A segment may be empty (closed before it opened) when two boundaries lie at one place, with nothing between them.
    """

    id: str
    opened_seq: int | str
    closed_seq: int | str | None
    end_reason: str | None
    precision: str
    compaction: str | None = None
    carried_turn: str | None = None
    continued_turn: str | None = None
    opened_between: tuple[int | str, int | str] | None = None
    closed_between: tuple[int | str, int | str] | None = None


class SegmentCut(NamedTuple):
    """A boundary. A historic one was reported, and has no place among our messages."""

    place: Place
    reason: str
    precision: str
    turn: str = ""
    compaction: str | None = None
    between: tuple[int | str, int | str] | None = None


class View:
    """How a session looks at some moment. `count`: compactions that count. `owner`: who runs it, "" if unknown."""

    def __init__(
        self,
        segments: list[Segment],
        compactions: list[Compaction],
        boundaries: list[SegmentCut],
        starts: list[Place],
        owner: str,
    ) -> None:
        self.segments = segments
        self.compactions = compactions
        self.boundaries = boundaries
        self.count = sum(compaction.counted for compaction in compactions)
        self.owner = owner
        self._starts = starts

    @property
    def current(self) -> Segment:
        return self.segments[-1]

    def segment_at(self, place: Place) -> Segment:
        return self.segments[max(0, bisect_right(self._starts, place) - 1)]


class Folding:
    """Takes one fact after the other. `state` is JSON data, from which another Folding continues."""

    def __init__(self, native: str, state: Mapping[str, Any] | None = None) -> None:
        """`native`: the session's native root id, as signals name it."""
        state = state or {}
        self._native = native
        self._place: Place = _place(state.get("place", (0, 0)))
        #: The last place of anything but a log line.
        self._spoken: Place = _place(state.get("spoken", (0, 0)))
        self._turn: str = state.get("turn", "")
        self._began: Place = _place(state.get("began", _FIRST))
        self._settled: list[str] = list(state.get("settled", ()))
        self._owner: str = state.get("owner", "")
        self._since: Place = _place(state.get("since", (0, 0)))
        self._pairing = Pairing(native, state.get("compactions"))

    @property
    def state(self) -> dict[str, Any]:
        return {
            "place": list(self._place),
            "spoken": list(self._spoken),
            "turn": self._turn,
            "began": list(self._began),
            "settled": list(self._settled),
            "owner": self._owner,
            "since": list(self._since),
            "compactions": self._pairing.saved(),
        }

    # -- facts

    def step(self, place: Place, fact: Fact, at: str = "") -> None:
        """`at`: when it was captured. A fact without a meaning for segments still shows that there is something at that place."""
        self._move(place, is_log=isinstance(fact, Signal) and fact.source == c.SCRAPED)
        if isinstance(fact, Signal):
            self._pairing.add_signal(fact, self._moment(fact, at))
        elif isinstance(fact, Boundary):
            self._pairing.add_boundary(fact.reason, fact.id, self._moment(None, at))
        elif isinstance(fact, TurnBegan):
            if fact.turn not in self._settled:
                self._turn, self._began = fact.turn, place
        elif isinstance(fact, TurnSettled):
            self._settle(fact, at)
        elif isinstance(fact, Owner):
            self._own(fact, at)

    def give_up(self, opened_at: str | None, closing: str, at: str) -> None:
        """End a compaction that nothing else will end, by a repair."""
        self._pairing.give_up(opened_at, closing, at)

    def _move(self, place: Place, *, is_log: bool) -> None:
        self._place = max(place, self._place)
        if not is_log:
            self._pairing.set_upper_bound(place)
            self._spoken = place

    def _settle(self, fact: TurnSettled, at: str) -> None:
        turn = fact.turn or self._turn
        self._pairing.settle_turn(turn, fact.at or at or None)
        if turn == self._turn:
            self._turn = ""
        if turn:
            self._settled = [*(other for other in self._settled if other != turn), turn][-_SETTLED_REMEMBERED:]

    def _own(self, fact: Owner, at: str) -> None:
        if fact.alive:
            self._owner, self._since = fact.name, self._place
            return
        name = fact.name or self._owner
        self._pairing.end_owner(name, fact.at or at or None)
        if name == self._owner:
            self._owner = ""

    def _moment(self, signal: Signal | None, at: str) -> Moment:
        """A log line happened between the messages around it; anything else between the beginning of its turn and here."""
        is_log = signal is not None and signal.source == c.SCRAPED
        low = self._spoken if is_log else self._began
        return Moment(self._place, low, None if is_log else self._place, self._since, self._turn, self._owner, at)

    def is_cut(self, place: Place) -> bool:
        """Whether a boundary lies just before that place."""
        return any(cut.place == place and cut.precision != HISTORIC for cut in self._cuts(""))

    # -- the view

    def view(
        self,
        now: str,
        alive: Callable[[str], bool] = lambda owner: True,
        ended: Place | None = None,
        *,
        session: str = "",
    ) -> View:
        """How it looks at the time `now`. `ended`: the last place, if the session is over. `session`: its whole id."""
        name = session or self._native
        cuts = self._cuts(name)
        inside = [cut for cut in cuts if cut.precision != HISTORIC]
        compactions = [c.view_compaction(entity, name, now, alive) for entity in self._pairing.entities.values()]
        return View(
            segments=_segments(name, inside, ended),
            compactions=compactions,
            boundaries=cuts,
            starts=[_FIRST, *(cut.place for cut in inside)],
            owner=self._owner,
        )

    def _cuts(self, name: str) -> list[SegmentCut]:
        cuts = [SegmentCut(m.place, reason, EXACT, m.turn) for _, reason, m in self._pairing.marks]
        for entity in self._pairing.entities.values():
            id = f"{name}#c{entity.n}"
            if entity.historic:
                cuts.append(SegmentCut((0, 0), "compaction", HISTORIC, compaction=id))
            elif c.is_counted(entity) and entity.spot:
                m = entity.spot
                exact = c.is_exact(entity)
                between = None if exact else (written(min(m.low, m.place)), written(m.high or m.place))
                cuts.append(SegmentCut(m.place, "compaction", EXACT if exact else INTERVAL, m.turn, id, between))
        return sorted(cuts, key=lambda cut: cut.place)


def _segments(name: str, cuts: list[SegmentCut], ended: Place | None) -> list[Segment]:
    found = []
    for n, (start, end) in enumerate(zip([None, *cuts], [*cuts, None], strict=True), 1):
        vague = any(cut is not None and cut.precision == INTERVAL for cut in (start, end))
        over = ended is not None and end is None
        found.append(
            Segment(
                id=f"{name}#{n}",
                opened_seq=written(start.place if start else _FIRST),
                closed_seq=written(_before(end.place)) if end else written(ended) if ended else None,
                end_reason=end.reason if end else "ended" if over else None,
                precision=INTERVAL if vague else EXACT,
                compaction=end.compaction if end else None,
                carried_turn=start.turn or None if start else None,
                continued_turn=end.turn or None if end else None,
                opened_between=start.between if start else None,
                closed_between=end.between if end else None,
            )
        )
    return found


def live(view: View, *, owner_alive: bool, active_turn: str | None) -> dict[str, Any]:
    """The current state, for somebody who attaches."""
    compactions = [compaction for compaction in view.compactions if not compaction.historic]
    last = max(compactions, key=lambda c: (c.active, c.closed_at or c.opened_at or ""), default=None)
    return {
        "owner_alive": owner_alive,
        "active_turn": active_turn,
        "active_segment": view.current.id,
        "compaction": {
            "active": any(compaction.active for compaction in compactions),
            "last_source": last.sources[0] if last else None,
            "last_is_fallback": bool(last and last.fallback),
            "last_started_at": max((c.opened_at for c in compactions if c.opened_at), default=None),
            "last_completed_at": max((c.closed_at for c in compactions if c.counted and c.closed_at), default=None),
            "count": view.count,
        },
    }


def written(place: Place) -> int | str:
    seq, n = place
    return f"{seq}.{n}" if n else seq


def _before(place: Place) -> Place:
    """The last place before: in the same frame, or all of the frame before."""
    seq, n = place
    return (seq, n - 1) if n > 1 else (seq - 1, 0)


def _place(saved: Sequence[int]) -> Place:
    return saved[0], saved[1]
