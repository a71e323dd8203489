"""Segments and compactions: the table of what went wrong elsewhere, and any order, repetition, delay and loss of signals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from time import process_time
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.agents.acp import log_lines as acp_scraped
from dreamkeep.agents.facts import Boundary, Fact, MessageSaid, Owner, Signal, TurnBegan, TurnSettled
from dreamkeep.session.compactions.compaction import DEADLINE_S, Compaction
from dreamkeep.session.compactions.segments import Folding, Segment, View, live

ROOT = "20261115_100000_aaaaaa"
NEW, LATER, SUBAGENT = "20261115_101000_bbbbbb", "20261115_102000_cccccc", "20261115_100500_dddddd"


def at(second: float) -> str:
    minutes, rest = divmod(second, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"2026-11-15T{10 + hours:02}:{minutes:02}:{rest:09.6f}Z"


NEVER = at(11 * 3600)
#: Nobody needs a fact's time but the deadlines; what comes without one came now.
Timed = tuple[float, Fact]


# -- what agents say


def begun(scope: str = ROOT, **more: Any) -> Signal:
    return Signal("scraped", "started", scope=scope, before={"messages": 25}, **more)


def done(scope: str = ROOT, messages: tuple[int, int] = (25, 11), **more: Any) -> Signal:
    return Signal("scraped", "completed", scope=scope, before={"messages": messages[0]}, after={"messages": messages[1]}, **more)


def report(depth: int, scope: str = NEW, old_scope: str = ROOT, **more: Any) -> Signal:
    """Hermes after a turn, as the reader of ACP frames gives it."""
    return Signal("structured", "completed", id=f"{scope}@{depth}", scope=scope, old_scope=old_scope, depth=depth, **more)


def update(phase: str, id: str, **more: Any) -> Signal:
    return Signal("structured", phase, id=id, scope=ROOT, **more)


def record(id: str, **more: Any) -> Signal:
    return Signal("transcript", "completed", id=id, **more)


def hook(phase: str, **more: Any) -> Signal:
    return Signal("hook", phase, reason="auto", **more)


def words(text: str = "words") -> MessageSaid:
    return MessageSaid("assistant", text, "")


BEGAN, SETTLED = TurnBegan("t1", "prompt"), TurnSettled("t1", "completed")
TAP, TAP_GONE = Owner("tap-1", True), Owner("tap-1", False, reason="signal 9")


# -- folding them


def timed(facts: Iterable[Fact | Timed]) -> list[Timed]:
    """A second apart, where they do not say when."""
    found: list[Timed] = []
    now = 0.0
    for fact in facts:
        if isinstance(fact, tuple) and not hasattr(fact, "_fields"):
            now = fact[0]
            found.append((now, fact[1]))
        else:
            now += 1
            found.append((now, fact))  # type: ignore[arg-type]
    return found


def stepped(folding: Folding, seq: int, second: float, fact: Fact) -> None:
    moment = at(second)
    folding.step(
        (seq, 1), fact._replace(at=moment) if isinstance(fact, Signal | Owner | TurnBegan | TurnSettled) else fact, moment
    )


def fold(facts: Iterable[Fact | Timed], *, reload: bool = False) -> Folding:
    """One fact in each frame, from frame 2; `reload`: put the state away after each, as JSON."""
    folding = Folding(ROOT)
    for seq, (second, fact) in enumerate(timed(facts), 2):
        stepped(folding, seq, second, fact)
        if reload:
            folding = Folding(ROOT, json.loads(json.dumps(folding.state)))
    return folding


def shown(folding: Folding, now: str = NEVER, alive: Callable[[str], bool] = lambda owner: True) -> tuple[Any, ...]:
    view = folding.view(now, alive)
    return view.segments, view.compactions, view.boundaries, view.count, view.owner


def boundaries(view: View) -> int:
    return sum(cut.precision != "historic" for cut in view.boundaries)


def tiles(segments: Sequence[Segment], until: int) -> bool:
    """Each place is in one segment, and the places of a segment follow each other (one fact in each frame here)."""
    edges = [(segment.opened_seq, segment.closed_seq) for segment in segments]
    starts = [int(str(opened).partition(".")[0]) for opened, _ in edges]
    ends = [closed if closed is not None else until for _, closed in edges]
    follow = all(start == int(str(end)) + 1 for start, end in zip(starts[1:], ends[:-1], strict=True))
    return starts[0] == 1 and ends[-1] == until and follow


# -- the table


class Case(NamedTuple):
    """What is said, and what must come of it: boundaries, count, and whatever else `holds` (of the view when it is asked)."""

    what: str
    says: Sequence[Fact | Timed]
    boundaries: int
    compacted: int
    holds: Callable[[View], bool] = lambda view: True
    now: str = NEVER
    alive: Callable[[str], bool] = lambda owner: True


def first(view: View) -> Compaction:
    return view.compactions[0]


def closings(view: View) -> list[str | None]:
    return [one.closing for one in view.compactions]


def sources(view: View) -> list[list[str]]:
    return [one.sources for one in view.compactions]


def is_active(view: View) -> bool:
    return bool(live(view, owner_alive=True, active_turn=None)["compaction"]["active"])


QUOTE = '2026-11-15 18:48:17,232 INFO tools.read_file: line 3: "context compression done: session=x messages=25->11 tokens=~9"'
QUOTED = [signal] if (signal := acp_scraped.signal(QUOTE, at(1), "")) else []

ENDINGS: dict[str, list[Fact | Timed]] = {
    "failed": [update("failed", "7")],
    "cancelled": [update("cancelled", "7")],
    "turn_settled": [SETTLED],
    "agent_died": [TAP_GONE],
    "superseded": [update("started", "8")],
    "timeout": [(4000, words())],
    "owner_gone": [Owner("tap-2", True)],
}

TABLE = [
    Case(
        "S1-killed-and-attached-again",
        [TAP, BEGAN, begun(), TAP_GONE, Owner("tap-2", True)],
        0,
        0,
        lambda v: closings(v) == ["agent_died"] and not is_active(v),
        at(10),
    ),
    Case(
        "S1-the-tap-died-with-the-agent",
        [TAP, BEGAN, begun()],
        0,
        0,
        lambda v: closings(v) == ["owner_gone"] and not is_active(v),
        at(10),
        lambda owner: False,
    ),
    Case("S1-and-active-before", [TAP, BEGAN, begun()], 0, 0, lambda v: is_active(v) and first(v).state == "in_progress", at(10)),
    Case(
        "S2-turn-settles",
        [BEGAN, begun(), SETTLED],
        0,
        0,
        lambda v: closings(v) == ["turn_settled"] and not is_active(v),
        at(10),
    ),
    Case(
        "S2-opened-in-another-turn",
        [BEGAN, begun(turn="t0"), update("started", "7"), SETTLED],
        0,
        0,
        lambda v: is_active(v) and first(v).turn == "t0",
        at(10),
    ),
    Case(
        "S2-opened-outside-of-turns",
        [begun(), BEGAN, SETTLED],
        0,
        0,
        is_active,
        at(10),
    ),
    Case(
        "S3-deadline",
        [(0, begun())],
        0,
        0,
        lambda v: closings(v) == ["timeout"] and not is_active(v) and first(v).closed_at == at(DEADLINE_S),
        at(DEADLINE_S),
    ),
    Case("S3-a-second-before", [(0, begun())], 0, 0, is_active, at(DEADLINE_S - 1)),
    Case("S3-clock-set-back", [(7200, begun())], 0, 0, lambda v: not is_active(v), at(0)),
    Case("S4-twice-the-same-id", [update("started", "7"), update("started", "7")], 0, 0, lambda v: len(v.compactions) == 1),
    Case("S4-twice-without-an-id", [begun(), begun(), done()], 1, 1, lambda v: len(v.compactions) == 1),
    Case(
        "S4-another-id",
        [update("started", "7"), update("started", "8"), update("completed", "8")],
        1,
        1,
        lambda v: closings(v) == ["superseded", "completed"],
    ),
    Case(
        "S4-another-id-of-another-scope",
        [
            report(1),
            Signal("structured", "started", id="7", scope=ROOT),
            Signal("structured", "started", id="8", scope=NEW),
        ],
        1,
        1,
        lambda v: closings(v) == ["completed", None, None],
        at(5),
    ),
    Case(
        "S4-heartbeats",
        [(0, update("started", "7")), (500, update("progress", "7")), (1000, update("progress", "7"))],
        0,
        0,
        lambda v: is_active(v) and len(v.compactions) == 1,
        at(1000 + DEADLINE_S - 1),
    ),
    *(
        Case(
            f"S5-done-after-{closing}",
            [TAP, BEGAN, update("started", "7"), *ending, update("completed", "7"), update("completed", "7")],
            1,
            1,
            lambda v: first(v).late and closings(v)[0] == "completed",
        )
        for closing, ending in ENDINGS.items()
    ),
    Case("S5-in-time-is-not-late", [update("started", "7"), update("completed", "7")], 1, 1, lambda v: not first(v).late),
    Case(
        "S5-log-line-after-the-turn",
        [BEGAN, begun(), SETTLED, done()],
        1,
        1,
        lambda v: first(v).late and len(v.compactions) == 1,
    ),
    Case(
        "S5-late-start",
        [update("started", "7"), update("completed", "7"), update("started", "7"), update("progress", "7")],
        1,
        1,
        lambda v: not is_active(v) and len(v.compactions) == 1,
        at(5),
    ),
    Case(
        "S5-late-start-without-an-id",
        [(1, done()), (2, begun()), (3, Signal("hook", "progress"))],
        1,
        1,
        lambda v: not is_active(v),
        at(3 + DEADLINE_S),
    ),
    Case("S5-last-breath", [hook("started"), hook("completed"), hook("progress")], 1, 1, lambda v: len(v.compactions) == 1),
    Case(
        "S6-old-id-then-structured",
        [(1, done()), (1.001, report(1))],
        1,
        1,
        lambda v: sources(v) == [["structured", "scraped"]] and first(v).verified and not first(v).in_place,
    ),
    Case(
        "S7-40-minutes-later",
        [(1, done()), (2401, report(1))],
        1,
        1,
        lambda v: sources(v) == [["structured", "scraped"]] and first(v).verified,
    ),
    Case(
        "S8-new-id-then-structured",
        [begun(), done(NEW), words(), report(1)],
        1,
        1,
        lambda v: sources(v) == [["structured", "scraped"]] and v.segments[1].opened_seq == "3.1",
    ),
    Case("S8-not-before-it-is-ours", [begun(), done(NEW), words()], 0, 0),
    Case("S9-structured-then-done", [report(1), done()], 1, 1, lambda v: sources(v) == [["structured", "scraped"]]),
    Case("S9-structured-then-done-with-the-new-id", [report(1), begun(), done(NEW)], 1, 1, lambda v: len(v.compactions) == 1),
    Case(
        "S10-two-and-depth-2",
        [begun(), done(), words(), begun(), done(), words(), report(2)],
        2,
        2,
        lambda v: sources(v) == [["structured", "scraped"]] * 2,
    ),
    Case("S10-nobody-else-saw-them", [report(2)], 2, 2, lambda v: not any(one.in_place for one in v.compactions)),
    Case("S10-one-seen", [done(), report(2), done(NEW)], 2, 2, lambda v: sources(v) == [["structured", "scraped"]] * 2),
    Case(
        "S10-an-id-in-between-that-the-agent-tells-to-be-ours",
        [
            begun(),
            done(NEW),
            begun(NEW),
            done(NEW),
            Signal("structured", "noop", scope=NEW, old_scope=ROOT, historic=True),
            report(2, LATER, NEW),
        ],
        2,
        2,
        lambda v: sources(v) == [["structured", "scraped"]] * 2,
    ),
    Case("S11-structured-only", [report(1)], 1, 1, lambda v: first(v).verified and not first(v).inferred),
    Case(
        "S11-update-only", [update("started", "7"), update("completed", "7")], 1, 1, lambda v: v.segments[0].precision == "exact"
    ),
    Case(
        "S11-update-and-report",
        [update("started", "7"), update("completed", "7"), report(1)],
        1,
        1,
        lambda v: sources(v) == [["structured"]],
    ),
    Case(
        "S12-done-only-in-place",
        [words(), begun(), done(), words()],
        1,
        1,
        lambda v: first(v).in_place and first(v).inferred and not first(v).fallback and v.segments[0].precision == "interval",
    ),
    Case("S13-two-structured", [(1, report(1)), (1.2, report(2, LATER, NEW))], 2, 2),
    Case("S13-two-updates", [(1, update("completed", "7")), (1.2, update("completed", "8"))], 2, 2),
    Case("S13-one-log-line-for-two", [report(1), report(2, LATER, NEW), done(LATER)], 2, 2, lambda v: len(v.compactions) == 2),
    Case(
        "S14-again",
        [report(1), report(1), report(1, historic=True), Boundary("load", id="l1"), report(1)],
        2,
        1,
        lambda v: [s.end_reason for s in v.segments] == ["compaction", "load", None],
    ),
    Case("S14-update-again", [update("completed", "7"), update("completed", "7", historic=True), update("completed", "7")], 1, 1),
    Case("S14-deeper-before-we-listened", [report(3, historic=True), report(3), report(3)], 0, 0),
    Case("S14-without-depth", [Signal("structured", "completed", scope=NEW, old_scope=ROOT)] * 3, 1, 1),
    Case("S14-neither-depth-nor-split", [Signal("structured", "completed", scope=ROOT)] * 3, 1, 1),
    Case("S14-the-same-split-in-a-transcript", [Signal("transcript", "completed", scope=NEW, old_scope=ROOT)] * 3, 1, 1),
    Case("S15-subagent", [begun(SUBAGENT), done(SUBAGENT), words()], 0, 0, lambda v: v.compactions == []),
    Case("S15-subagent-inside", [begun(), begun(SUBAGENT), done(SUBAGENT), done()], 1, 1, lambda v: len(v.compactions) == 1),
    Case(
        "S16-nothing-changed",
        [begun(), done(messages=(25, 25))],
        0,
        0,
        lambda v: first(v).noop and first(v).before == first(v).after == {"messages": 25} and len(v.compactions) == 1,
    ),
    Case("S16-and-then-a-real-one", [begun(), done(messages=(25, 25)), begun(), done(), report(1)], 1, 1),
    Case("S16-said-as-such", [begun(), Signal("scraped", "noop", scope=ROOT)], 0, 0, lambda v: first(v).noop),
    Case(
        "S17-rolled-back-split",
        [report(0), BEGAN, begun(), done(), report(0), SETTLED],
        1,
        1,
        lambda v: first(v).in_place and not first(v).verified and first(v).fallback,
    ),
    Case(
        "S17-the-next-report-is-not-about-it",
        [begun(), done(), report(0), words(), begun(), done(), report(1)],
        2,
        2,
        lambda v: [one.verified for one in v.compactions] == [False, True],
    ),
    Case(
        "S18-rollover",
        [words(), report(1, reason="turn_boundary_rollover"), report(1, reason="turn_boundary_rollover")],
        1,
        0,
        lambda v: v.segments[0].end_reason == "turn_boundary_rollover" and v.compactions == [],
    ),
    Case("S18-rollover-after-a-compaction", [done(), report(2, reason="turn_boundary_rollover")], 2, 1),
    Case(
        "S19-load",
        [words(), words(), Boundary("load", id="l1"), Boundary("load", id="l1"), words()],
        1,
        0,
        lambda v: v.segments[0].end_reason == "load" and v.segments[0].closed_seq == 3,
    ),
    Case(
        "S20-quoted", [words("context compression done: session=x messages=25->11"), *QUOTED], 0, 0, lambda v: v.compactions == []
    ),
    Case(
        "S21-replayed-history",
        [words(), update("completed", "7", historic=True), words(), Boundary("load", id="l1"), words()],
        1,
        0,
        lambda v: first(v).historic and [cut.precision for cut in v.boundaries] == ["historic", "exact"],
    ),
    Case(
        "S21-replay-of-what-we-saw",
        [update("completed", "7"), words(), update("completed", "7", historic=True), Boundary("load", id="l1")],
        2,
        1,
        lambda v: len(v.compactions) == 1,
    ),
    Case(
        "S21-the-transcript-tells-of-it-later",
        [report(1, historic=True), words(), record("u1"), words()],
        1,
        1,
        lambda v: sources(v) == [["structured", "transcript"]] and not first(v).historic,
    ),
    Case(
        "S21-a-live-one-is-another",
        [report(1, historic=True), done(NEW), report(2, LATER, NEW)],
        1,
        1,
        lambda v: [one.historic for one in v.compactions] == [True, False],
    ),
    Case("S22-late-log-lines", [BEGAN, words(), report(1), SETTLED, begun(), done()], 1, 1, lambda v: len(v.compactions) == 1),
    Case(
        "S23-drained-behind-the-death",
        [TAP, BEGAN, begun(), TAP_GONE, done()],
        1,
        1,
        lambda v: first(v).late and first(v).state == "completed",
    ),
    Case(
        "S21-without-names-at-every-load",
        [
            *[Signal("structured", "completed", historic=True)] * 2,
            Boundary("load"),
            *[Signal("structured", "completed", historic=True)] * 2,
        ],
        1,
        0,
        lambda v: len(v.compactions) == 2,
    ),
    Case("S24-a-turn-that-is-told-again", [BEGAN, SETTLED, BEGAN, record("u1")], 1, 1, lambda v: v.current.carried_turn is None),
    Case("S24-there-is-always-a-current-segment", [record("u1")], 1, 1, lambda v: v.current.closed_seq is None),
    Case(
        "S25-turns-of-two-runs",
        [
            TAP,
            TurnBegan("run1-1", ""),
            begun(),
            TAP_GONE,
            Owner("tap-2", True),
            TurnBegan("run2-1", ""),
            begun(),
            TurnSettled("run2-1", "failed"),
        ],
        0,
        0,
        lambda v: closings(v) == ["agent_died", "turn_settled"],
    ),
    Case(
        "S26-foreign-ids-do-not-rotate",
        [
            words(),
            Signal("structured", "completed", id="x", scope=SUBAGENT, old_scope=LATER, depth=4),
            done(SUBAGENT),
            words(),
            Signal("structured", "completed", id="y", scope=LATER, old_scope=SUBAGENT, depth=5),
        ],
        0,
        0,
        lambda v: len(v.segments) == 1 and v.compactions == [],
    ),
    Case(
        "S27-what-was-before-stays-where-it-was",
        [words("a"), words("b"), record("u1"), words("c")],
        1,
        1,
        lambda v: [v.segment_at((seq, 1)).id for seq in (2, 3, 4, 5)] == [f"{ROOT}#1"] * 2 + [f"{ROOT}#2"] * 2,
    ),
    Case(
        "S28-what-a-fork-copied",
        [record("u1", historic=True), words(), record("u2"), record("u1", historic=True)],
        1,
        1,
        lambda v: [one.historic for one in v.compactions] == [True, False],
    ),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.what)
def test_cases_that_went_wrong_in_other_programs_come_out_right(case: Case) -> None:
    """S1 S2 S3 S4 S5 S6 S7 S8 S9 S10 S11 S12 S13 S14 S15 S16 S17 S18 S19 S20 S21 S22 S23 S24 S25 S26 S27 S28, as a fold sees it.

    Elsewhere: the words of log lines (S20), draining (S23), who makes turn ids (S25), searching (S27), where copies end (S28).
    """
    view = fold(case.says).view(case.now, case.alive)
    assert (boundaries(view), view.count) == (case.boundaries, case.compacted), view.compactions
    assert case.holds(view), view.compactions
    assert len(view.segments) == case.boundaries + 1


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.what)
def test_live_and_rebuilt_are_equal_wherever_one_stops(case: Case) -> None:
    """S24: what is kept between two facts is JSON, and nothing else matters."""
    facts = timed(case.says)
    kept = Folding(ROOT)
    for n, (second, fact) in enumerate(facts):
        stepped(kept, n + 2, second, fact)
        kept = Folding(ROOT, json.loads(json.dumps(kept.state)))
        rebuilt = fold(facts[: n + 1])
        assert shown(kept, case.now, case.alive) == shown(rebuilt, case.now, case.alive)
        assert kept.state == rebuilt.state


# -- places, turns, and what people see


CLAUDE = [hook("started"), hook("progress"), hook("completed")]


@pytest.mark.parametrize(
    "says",
    [
        [*CLAUDE, record("u1")],
        [record("u1"), *CLAUDE],
        [CLAUDE[0], record("u1"), *CLAUDE[1:]],
        [CLAUDE[0], SETTLED, record("u1")],
        [BEGAN, CLAUDE[0], SETTLED, record("u1"), CLAUDE[2]],
        [update("started", "7"), CLAUDE[0], record("u1"), CLAUDE[2], update("completed", "7")],
    ],
)
def test_hooks_transcript_and_protocol_report_one_compaction_in_any_order(says: list[Fact]) -> None:
    """PreCompact, SessionStart{compact}, PostCompact and the transcript's record, drained before, after, or while it was read."""
    view = fold(says).view(NEVER)
    assert (view.count, boundaries(view), len(view.compactions)) == (1, 1, 1)
    assert not is_active(fold(says).view(at(len(says) + 1)))


def test_an_abandoned_attempt_does_not_swallow_the_next_compaction() -> None:
    view = fold([BEGAN, hook("started"), SETTLED, TurnBegan("t2", ""), *CLAUDE, record("u1")]).view(NEVER)
    assert view.count == 1
    assert closings(view) == ["turn_settled", "completed"]
    assert sources(view) == [["hook"], ["transcript", "hook"]]


def test_what_the_tap_hears_is_not_what_was_read_before_it_attached() -> None:
    old: list[Fact] = [record("u1"), record("u2")]
    taps: list[list[Fact]] = [[update("started", "7"), update("completed", "7")], [begun(), done()], [update("completed", "7")]]
    for heard in taps:
        view = fold([*old, TAP, *heard]).view(NEVER)
        assert view.count == 3
        assert sources(view)[:2] == [["transcript"]] * 2
        # And when the file is read again, it tells of the third: nothing new.
        assert fold([*old, TAP, *heard, *old, record("u3")]).view(NEVER).count == 3


def test_the_agents_own_count_at_a_load_is_about_what_we_know() -> None:
    """The answer to a load says 2; both are known from the transcript; the next report is about the next one."""
    known: list[Fact] = [record("u1"), record("u2"), TAP, report(2, historic=True)]
    assert fold(known).view(NEVER).count == 2
    view = fold([*known, report(3, LATER, NEW)]).view(NEVER)
    assert view.count == 3
    assert sources(view) == [["structured", "transcript"]] * 2 + [["structured"]]


def split(id: str, scope: str) -> Signal:
    return record(id, scope=scope, old_scope=ROOT)


def test_between_several_a_signal_belongs_to_the_one_that_fits() -> None:
    by_turn = fold([record("u1", turn="t1"), record("u2", turn="t2"), hook("completed", turn="t2")]).view(NEVER)
    assert sources(by_turn) == [["transcript"], ["transcript", "hook"]]
    by_scope = fold([split("u1", NEW), split("u2", LATER), Signal("scraped", "completed", scope=LATER)]).view(NEVER)
    assert sources(by_scope) == [["transcript"], ["transcript", "scraped"]]
    by_split = fold([split("u1", NEW), split("u2", LATER), Signal("structured", "completed", scope=LATER, old_scope=ROOT)]).view(
        NEVER
    )
    assert sources(by_split) == [["transcript"], ["structured", "transcript"]]


def test_a_split_that_made_another_session_is_another_compaction() -> None:
    view = fold([report(1, NEW), split("u2", LATER)]).view(NEVER)
    assert (view.count, sources(view)) == (2, [["structured"], ["transcript"]])


def test_a_depth_counts_even_when_its_name_was_given_to_another() -> None:
    view = fold([report(2, NEW), split("u3", LATER), report(3, LATER)]).view(NEVER)
    assert view.count == 3


def test_what_changed_nothing_ends_nothing_that_others_saw_starting() -> None:
    said = [
        hook("started"),
        update("started", "7"),
        Signal("scraped", "noop", scope=ROOT),
        hook("completed"),
        update("completed", "7"),
    ]
    view = fold(said).view(NEVER)
    assert (view.count, [one.noop for one in view.compactions]) == (1, [False, True])


def test_a_late_completion_is_of_the_last_that_was_given_up() -> None:
    given_up: list[Fact] = [BEGAN, hook("started"), SETTLED, TurnBegan("t2", ""), begun(), TurnSettled("t2", "completed")]
    assert closings(fold([*given_up, record("u1")]).view(NEVER)) == ["turn_settled", "completed"]
    # Unless whoever says it saw an earlier one starting.
    assert closings(fold([*given_up, hook("completed")]).view(NEVER)) == ["completed", "turn_settled"]


def test_a_failure_of_what_others_completed_was_something_else() -> None:
    view = fold([update("started", "7"), record("u1"), update("failed", "7", error="no model")]).view(NEVER)
    assert (view.count, closings(view), sources(view)) == (1, ["completed", "failed"], [["transcript"], ["structured"]])
    assert view.compactions[1].error == "no model"
    done_is_done = fold([update("started", "7"), update("completed", "7"), update("failed", "7")]).view(NEVER)
    assert closings(done_is_done) == ["completed"]


def test_a_failure_that_several_speakers_report_is_one() -> None:
    view = fold([update("started", "7"), update("failed", "7"), Signal("transcript", "failed", id="u1")]).view(NEVER)
    assert (closings(view), sources(view)) == (["failed"], [["structured", "transcript"]])
    nothing = fold([Signal("scraped", "noop", scope=ROOT), Signal("transcript", "noop", id="u1")]).view(NEVER)
    assert [one.sources for one in nothing.compactions] == [["transcript", "scraped"]]


def test_it_was_opened_and_completed_when_that_was_first_said() -> None:
    assert first(fold([(1, record("u1")), (50, record("u1"))]).view(NEVER)).closed_at == at(1)
    folding = Folding(ROOT)  # the hooks' times are right, though they were drained later
    for seq, signal in enumerate((record("u1", at=at(30)), hook("started", at=at(10)), hook("completed", at=at(31))), 2):
        folding.step((seq, 1), signal, at(90))
    assert first(folding.view(NEVER))[7:9] == (at(10), at(30))


def places(view: View) -> list[int | str]:
    return [segment.opened_seq for segment in view.segments]


@pytest.mark.parametrize(
    ("says", "opened", "precision"),
    [
        ([words(), record("u1")], "3.1", "exact"),
        ([words(), update("completed", "7")], "3.1", "exact"),
        ([words(), hook("completed")], "3.1", "interval"),
        ([words(), hook("completed"), words(), record("u1")], "5.1", "exact"),
        ([words(), record("u1"), words(), hook("completed")], "3.1", "exact"),
        ([words(), done(), words(), update("completed", "7")], "5.1", "exact"),
        ([words(), done(), words(), report(1)], "3.1", "interval"),
        ([words(), report(1), words(), done()], "3.1", "interval"),
        ([words(), done(), words(), record("u1")], "3.1", "interval"),
        ([words(), update("completed", "7"), words(), record("u1")], "3.1", "exact"),
    ],
)
def test_the_most_exact_speaker_places_a_boundary(says: list[Fact], opened: str, precision: str) -> None:
    """First told wins, as with messages; but a hook comes at any time, and an update is exact where a log line is near."""
    view = fold(says).view(NEVER)
    assert places(view) == [1, opened]
    assert [segment.precision for segment in view.segments] == [precision] * 2


def test_a_log_lines_boundary_lies_between_the_frames_around_it() -> None:
    assert fold([words(), words(), done()]).view(NEVER).segments[0].closed_between == ("3.1", "4.1")
    view = fold([words(), words(), begun(), done(), begun(SUBAGENT), words(), words()]).view(NEVER)
    assert view.segments[0].closed_between == view.segments[1].opened_between == ("3.1", "7.1")
    waited = fold([words(), done(NEW), words(), words(), report(1)]).view(NEVER)
    assert waited.segments[0].closed_between == ("2.1", "4.1")


def test_a_report_behind_the_turn_lies_somewhere_in_the_turn() -> None:
    assert fold([words(), BEGAN, words(), report(1)]).view(NEVER).segments[0].closed_between == ("3.1", "5.1")


def test_a_turn_that_spans_a_boundary_is_carried() -> None:
    """Its bookends are shown together: the segment behind the boundary knows whose prompt it needs."""
    view = fold([BEGAN, words(), record("u1"), words(), SETTLED, record("u2"), TurnBegan("t2", ""), record("u3")]).view(NEVER)
    assert [segment.carried_turn for segment in view.segments] == [None, "t1", None, "t2"]
    assert [segment.continued_turn for segment in view.segments] == ["t1", None, "t2", None]
    assert [one.turn for one in view.compactions] == ["t1", None, "t2"]


def test_segments_are_closed_by_the_place_before_the_next_one() -> None:
    folding = Folding("root")
    for place in ((2, 1), (2, 2), (7, 1)):
        folding.step(place, record(f"u{place}"), at(1))
    view = folding.view(NEVER, ended=(9, 0), session="claude:root")
    assert [(s.id, s.opened_seq, s.closed_seq) for s in view.segments] == [
        ("claude:root#1", 1, 1),
        ("claude:root#2", "2.1", "2.1"),
        ("claude:root#3", "2.2", 6),
        ("claude:root#4", "7.1", 9),
    ]
    assert [s.end_reason for s in view.segments] == ["compaction", "compaction", "compaction", "ended"]
    assert [view.segment_at(place).id[-1] for place in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 9), (6, 3), (7, 1), (99, 0))] == list(
        "11233344"
    )


def test_the_live_view_says_what_goes_on() -> None:
    said: list[Fact | Timed] = [
        TAP,
        report(0, historic=True),
        BEGAN,
        (10, begun()),
        (20, done()),
        (30, report(1)),
        (40, begun(NEW)),
    ]
    view = fold(said).view(at(41))
    assert live(view, owner_alive=True, active_turn="t1") == {
        "owner_alive": True,
        "active_turn": "t1",
        "active_segment": f"{ROOT}#2",
        "compaction": {
            "active": True,
            "last_source": "scraped",
            "last_is_fallback": True,
            "last_started_at": at(40),
            "last_completed_at": at(30),
            "count": 1,
        },
    }
    assert live(fold([]).view(NEVER), owner_alive=False, active_turn=None)["compaction"]["last_source"] is None


def test_the_strongest_speaker_is_shown_and_the_others_fill_in() -> None:
    strong = record("u1", reason="manual", before={"tokens": 900})
    for says in ([hook("completed"), strong], [strong, hook("completed")]):
        one = first(fold(says).view(NEVER))
        assert (one.reason, one.before, one.native_id) == ("manual", {"tokens": 900}, "u1")
    again = [record("u1"), record("u1", reason="manual", after={"tokens": 9})]
    assert first(fold(again).view(NEVER)).reason == "manual"


def test_an_old_file_or_a_wrong_clock_makes_nothing_active() -> None:
    folding = Folding(ROOT)
    folding.step((2, 1), Signal("transcript", "started", "2026-01-01T00:00:00Z", "u1"), at(0))
    assert not is_active(folding.view(at(1)))
    folding = Folding(ROOT)
    folding.step((2, 1), Signal("transcript", "started", "2099-01-01T00:00:00Z", "u1"), at(0))
    assert is_active(folding.view(at(1))) and not is_active(folding.view(at(DEADLINE_S)))
    for nonsense in ("", "soon", "0000-99-99T00:00:00Z", "9999-12-31T23:59:59.999999Z"):
        folding = Folding(ROOT)
        folding.step((2, 1), Signal("transcript", "started", nonsense, "u1"))
        assert not is_active(folding.view(at(1)))


def test_absurd_claims_fill_no_memory() -> None:
    folding = fold([report(10**12)])
    assert len(folding.view(NEVER).compactions) <= 64
    folding = fold([done(f"foreign-{n}") for n in range(1000)])
    assert len(json.dumps(folding.state)) < 150_000


def test_folding_costs_the_same_for_the_ten_thousandth_compaction() -> None:
    """There are rollouts of 19 GiB that repeat their compactions."""
    folding = Folding(ROOT)

    def thousand(from_n: int) -> float:
        begin = process_time()
        for n in range(from_n, from_n + 1000):
            folding.step((n + 2, 1), record(f"u{n}"), at(1))
            folding.step((n + 2, 2), record(f"u{n}"), at(1))
        return process_time() - begin

    took = [thousand(n) for n in range(0, 10_000, 1000)]
    assert folding.view(NEVER).count == 10_000
    assert min(took[-3:]) < 4 * min(took[:3])


# -- any order, repetition, delay and loss


class Story(NamedTuple):
    """What became of some true compactions on their way to us."""

    compactions: int
    says: list[Timed]


UNCERTAIN = st.booleans()


def chain(n: int, split: bool) -> str:
    return f"{ROOT}-{n}" if split and n else ROOT


def told_by(draw: Any, voice: str, count: int, split: bool, whole: bool) -> list[Fact]:
    """What one voice says of all compactions, in its order: some of it lost, some of it said again."""
    says: list[Fact] = []
    for n in range(1, count + 1):
        old, new = chain(n - 1, split), chain(n, split)
        if voice in ("update", "hook", "scraped") and draw(UNCERTAIN):
            says += draw(st.sampled_from([1, 1, 2])) * [start(voice, n, old)]
        if voice == "report":
            # It states the depth: the last statement is enough.
            if (whole and n == count) or draw(UNCERTAIN):
                says.append(report(n, new, ROOT))
        elif whole or draw(UNCERTAIN):
            says.append(end(voice, n, new, draw(st.sampled_from([old, new]))))
        if says and voice in ("update", "report", "transcript") and draw(UNCERTAIN):
            again = draw(st.sampled_from(says))
            says.append(again)
    return says


def start(voice: str, n: int, scope: str) -> Signal:
    return {"update": update("started", f"u{n}"), "hook": hook("started"), "scraped": begun(scope)}[voice]


def end(voice: str, n: int, new: str, named: str) -> Signal:
    if voice == "transcript":
        return record(f"r{n}", scope=new, old_scope=ROOT if new != ROOT else "")
    return {"update": update("completed", f"u{n}"), "hook": hook("completed"), "scraped": done(named)}[voice]


def noise(draw: Any) -> list[list[Fact]]:
    """Turns, messages, owners, what is nothing, what comes to nothing, and what is another session's."""
    turns: list[Fact] = [
        fact for n in range(draw(st.integers(0, 3))) for fact in (TurnBegan(f"t{n}", ""), TurnSettled(f"t{n}", "completed"))
    ]
    nothing: list[Fact] = [Signal("scraped", "noop", scope=ROOT), hook("started"), hook("progress")]
    given_up: list[Fact] = [update("started", "x"), update(draw(st.sampled_from(["failed", "cancelled", "progress"])), "x")]
    foreign: list[Fact] = [begun(SUBAGENT), done(SUBAGENT), done(SUBAGENT)]
    all_of_it: list[list[Fact]] = [turns, [TAP_GONE], nothing, given_up, foreign, [words()] * 4]
    return [part for part in all_of_it if draw(UNCERTAIN)]


@st.composite
def stories(draw: Any) -> Story:
    count = draw(st.integers(0, 4))
    whole = draw(st.sampled_from(["update", "report", "transcript", "hook", "scraped"]))
    # Log lines alone cannot say that a new id is this session's.
    split = whole != "scraped" and draw(UNCERTAIN)
    streams = [
        told_by(draw, voice, count, split, voice == whole)
        for voice in ("update", "report", "transcript", "hook", "scraped")
        if voice == whole or draw(UNCERTAIN)
    ]
    streams += noise(draw)
    order = draw(st.permutations([n for n, stream in enumerate(streams) for _ in stream]))
    left = [iter(stream) for stream in streams]
    second = 0.0
    says: list[Timed] = [(0.0, TAP)] if draw(UNCERTAIN) else []
    for n in order:
        second += draw(st.sampled_from([0, 1, DEADLINE_S + 1]))
        says.append((second, next(left[n])))
    return Story(count, says)


@settings(max_examples=400, deadline=None)
@given(stories())
def test_each_compaction_is_one_boundary_and_one_count_whatever_happens_to_its_signals(story: Story) -> None:
    """Each voice keeps its own order; one of them tells of all. Otherwise anything may be lost, late or said again."""
    folding = fold(story.says)
    view = folding.view(NEVER)
    assert (view.count, boundaries(view)) == (story.compactions, story.compactions), view.compactions
    last = len(story.says) + 1
    assert tiles(view.segments, last)
    order = [view.segments.index(view.segment_at((seq, 1))) for seq in range(1, last + 1)]
    assert order == sorted(order) and order[-1] == story.compactions
    assert len({one.id for one in view.compactions}) == len(view.compactions)


def test_a_depth_that_names_its_last_leaves_it_one_that_may_have_that_name() -> None:
    """3, not 4. Three hooks tell of three, the reports' depth ends at three, three splits.

    The first one was given up (another update started) and completed late, so it has no name when the last report comes. That one
    counts two, and names one of them -3. The other untold one is -2: so the nameless one must not be taken as the other.
    """
    three, two, one = chain(3, True), chain(2, True), chain(1, True)
    says: list[Fact] = [
        hook("started"),
        update("started", "u1"),
        update("started", "u1"),
        update("started", "u3"),
        update("completed", "u3"),
        report(1, one),
        hook("completed"),
        report(1, one),
        hook("started"),
        split("r1", one),
        split("r2", two),
        split("r1", one),
        split("r1", one),
        update("started", "u1"),
        hook("completed"),
        hook("completed"),
        report(3, three),
    ]
    for instants in ([(0.0, fact) for fact in says], says):
        view = fold(instants).view(NEVER)
        assert (view.count, boundaries(view)) == (3, 3), view.compactions


def test_what_a_depth_was_taken_for_is_a_guess_that_gives_way_to_names() -> None:
    """Three hooks, depth three: the first report's other one was taken for the first, and -1 for the third, by its turn."""
    one, two, three = (chain(n, True) for n in (1, 2, 3))
    says = [
        hook("completed"),
        report(2, two),
        hook("completed"),
        hook("completed", turn="t3"),
        split("r1", one)._replace(turn="t3"),
    ]
    assert fold(says).view(NEVER).count == 3
    for more in ([report(3, three)], [begun(), report(3, three)]):
        assert fold([*says, *more]).view(NEVER).count == 3
        assert fold([*says, *more, split("r3", three)]).view(NEVER).count == 3
    # But a fourth name, or a greater depth, is one more.
    assert fold([*says, report(3, three), split("r4", chain(4, True))]).view(NEVER).count == 4
    assert fold([*says, report(4, chain(4, True))]).view(NEVER).count == 4


@settings(max_examples=200, deadline=None)
@given(stories(), st.booleans())
def test_a_fold_that_continues_from_its_state_after_every_fact_gives_the_same(story: Story, owner_lives: bool) -> None:
    """S24"""
    kept, straight = fold(story.says, reload=True), fold(story.says)
    now = at(story.says[-1][0]) if story.says else NEVER
    assert kept.state == straight.state
    assert shown(kept, now, lambda owner: owner_lives) == shown(straight, now, lambda owner: owner_lives)


@settings(max_examples=200, deadline=None)
@given(stories())
def test_nothing_stays_active(story: Story) -> None:
    """S1 S2 S3: not beyond its deadline, not without its owner, not after its turn; and what is shown as closed says why."""
    folding = fold(story.says)
    end_s = story.says[-1][0] if story.says else 0
    late = folding.view(at(end_s + DEADLINE_S))
    assert not is_active(late)
    assert all(one.closing for one in late.compactions)
    now = folding.view(at(end_s))
    orphaned = folding.view(at(end_s), lambda owner: False)
    if now.owner:
        opened_since = [b for a, b in zip(now.compactions, orphaned.compactions, strict=True) if a.active and b.active]
        assert opened_since == [], "what the tap saw starting ends with it"
    for one in now.compactions:
        if one.active and one.turn:
            settled = [second for second, fact in story.says if isinstance(fact, TurnSettled) and fact.turn == one.turn]
            assert all(at(second) <= str(one.opened_at) for second in settled)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_log_lines_that_race_with_frames_change_neither_counts_nor_order(data: st.DataObject) -> None:
    """S22: each log line arrives up to `skew` frames too early or too late; the frames' own order is kept."""
    skew = data.draw(st.integers(0, 4))
    frames: list[Fact] = []
    lines: list[tuple[int, Fact]] = []
    count = data.draw(st.integers(1, 3))
    for n in range(1, count + 1):
        frames += [TurnBegan(f"t{n}", ""), *[words()] * data.draw(st.integers(0, 3))]
        lines += [(len(frames), begun(chain(n - 1, True))), (len(frames), done(chain(n, True)))]
        frames += [words()] * data.draw(st.integers(0, 3))
        frames += [report(n, chain(n, True), chain(n - 1, True)), TurnSettled(f"t{n}", "completed")]
    true_places = [place for place, _ in lines[1::2]]
    raced: list[tuple[int, Fact]] = []
    for place, line in lines:
        before = raced[-1][0] if raced else 0
        moved = data.draw(st.integers(place - skew, place + skew))
        raced.append((max(before, min(moved, len(frames))), line))
    heard: list[tuple[bool, Fact]] = []
    for place in range(len(frames) + 1):
        heard += [(False, line) for at_place, line in raced if at_place == place]
        heard += [(True, frame) for frame in frames[place : place + 1]]
    view = fold(fact for _, fact in heard).view(NEVER)
    assert (view.count, boundaries(view)) == (count, count), view.compactions
    assert [fact for is_frame, fact in heard if is_frame] == frames
    for true_place, cut in zip(true_places, view.boundaries, strict=True):
        frames_before = sum(is_frame for is_frame, _ in heard[: cut.place[0] - 2])
        assert abs(frames_before - true_place) <= skew
