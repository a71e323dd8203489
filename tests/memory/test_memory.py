"""The fold of what was learned: identity decides, nothing is rewritten, an undone run never was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.event import Event, Kind
from dreamkeep.memory import dreams, note
from dreamkeep.memory.insight import TYPES, insight_id, note_id
from dreamkeep.memory.memory import _HANDLERS, Memory, fold

_count = iter(range(10**9))


def at(day: int) -> str:
    return f"2026-01-{day:02d}T00:00:00Z"


def event(_kind: str, _day: int = 1, /, **body: Any) -> Event:
    return Event(f"e-{next(_count)}", _kind, at(_day), body)


def insight(id: str, session: str = "python:a", said: int = 1, run: str = "", **more: Any) -> Event:
    evidence = [{"session": session, "seq": "7.1", "turn": "t", "quote": f"quote of {id}"}]
    body = {"id": id, "type": "constraint", "text": f"text of {id}", "project": "p", "evidence": evidence, "said_at": at(said)}
    return event(Kind.INSIGHT_ADDED, **{**body, "run": run, **more})


def a_note(id: str, *insights: str, run: str = "", project: str = "p", **more: Any) -> Event:
    about = {"kind": "constraint", "text": f"note {id}", "project": project}
    return event(Kind.NOTE_ADDED, id=id, **about, insights=list(insights), run=run, **more)


def test_repeating_an_event_changes_nothing() -> None:
    """T4 D6: a replay after a crash."""
    told = [
        insight("i-1"),
        a_note("n-1", "i-1"),
        event(Kind.NOTE_PINNED, id="n-1"),
        event(Kind.NOTE_RETRACTED, id="n-1", reason="no"),
        event(Kind.INSIGHT_CONFIRMED, id="i-1", note="n-1", reason="yes"),
    ]
    assert rows(fold(told)) == rows(fold([one for one in told for _ in range(3)]))


def rows(memory: Memory) -> dict[tuple[str, str], Any]:
    tables = ("insights", "notes", "tasks", "dreamed")
    return {(table, id): row.as_json() for table in tables for id, row in getattr(memory, table).items()}


def test_a_note_shows_all_that_it_rests_on_and_when_that_was_said() -> None:
    """M9: one note with more evidence."""
    memory = fold(
        [
            insight("i-1", "python:a", said=5),
            insight("i-2", "python:b", said=2, author="user", confidence=0.9),
            a_note("n-1", "i-1"),
            event(Kind.NOTE_STRENGTHENED, id="n-1", insights=["i-2"], reason="said again"),
        ]
    )
    found = memory.notes["n-1"]
    assert (found.sessions, found.author, found.confidence, found.first_at, found.last_at) == (2, "user", 0.9, at(2), at(5))
    assert [quote.session for quote in found.evidence] == ["python:a", "python:b"]
    assert [(step.what, step.why) for step in found.history] == [("added", ""), ("strengthened", "said again")]


def test_an_undone_run_leaves_no_trace_and_later_runs_keep_what_does_not_rest_on_it() -> None:
    """M11"""
    told = [
        insight("i-1", run="r-1"),
        a_note("n-1", "i-1", run="r-1"),
        insight("i-2", run="r-2"),
        a_note("n-2", "i-2", run="r-2"),
        a_note("n-3", "i-1", run="r-2"),
        event(Kind.NOTE_STRENGTHENED, id="n-1", insights=["i-2"], run="r-2"),
        event(Kind.NOTE_SUPERSEDED, id="n-2", by="n-1", run="r-1"),
    ]
    assert fold(told).notes["n-2"].state == note.SUPERSEDED
    memory = fold([*told, event(Kind.DREAM_UNDONE, run="r-1")])
    assert set(memory.insights) == {"i-2"}
    assert set(memory.notes) == {"n-1", "n-2"}, "what a later run found, too, stays; what rests on the undone one alone does not"
    assert memory.notes["n-1"].insights == ("i-2",)
    assert memory.notes["n-2"].state == note.ACTIVE and memory.runs["r-1"].undone


def test_undoing_a_run_that_was_folded_asks_for_a_new_fold() -> None:
    memory = fold([insight("i-1", run="r-1")])
    assert not memory.needs_refold
    memory.apply(event(Kind.DREAM_UNDONE, run="r-1"))
    assert memory.needs_refold


def test_rejecting_an_insight_ends_the_note_that_rests_on_it_alone() -> None:
    """D28"""
    told = [insight("i-1"), insight("i-2"), a_note("n-1", "i-1"), a_note("n-2", "i-1", "i-2")]
    memory = fold([*told, event(Kind.INSIGHT_REJECTED, id="i-1", reason="wrong")])
    assert memory.notes["n-1"].state == note.RETRACTED and memory.notes["n-1"].history[-1].why == "wrong"
    assert memory.notes["n-2"].state == note.ACTIVE and memory.notes["n-2"].insights == ("i-2",)


def test_a_retracted_note_does_not_come_back_by_itself() -> None:
    """M10"""
    told = [insight("i-1"), a_note("n-1", "i-1"), event(Kind.NOTE_RETRACTED, id="n-1", reason="by hand")]
    again = [insight("i-9", "python:later"), a_note("n-1", "i-9"), event(Kind.NOTE_STRENGTHENED, id="n-1", insights=["i-9"])]
    assert fold([*told, *again]).notes["n-1"].state == note.RETRACTED


def test_a_session_is_dreamed_in_ranges_and_what_a_dead_run_says_later_is_ignored() -> None:
    """M1 M2 D11 D20"""
    done = event(Kind.SESSION_COMPLETED, 1, session="s", seq=10, reason="ended")
    begun = event(Kind.DREAM_STARTED, 2, run="r-1", trigger="manual", sessions=[{"session": "s"}])
    memory = fold([done, done, begun])
    assert (memory.dreamed["s"].status, memory.dreamed["s"].attempts, memory.dreamed["s"].read) == (dreams.RUNNING, 1, 0)
    again = event(Kind.DREAM_STARTED, 3, run="r-2", trigger="manual", sessions=[{"session": "s"}])
    late = event(Kind.DREAM_READ, 4, run="r-1", session="s", upto=10, status="completed")
    memory = fold([done, begun, again, late])
    assert (memory.dreamed["s"].status, memory.dreamed["s"].attempts) == (dreams.RUNNING, 2), "the first run lost its hold"
    read = event(Kind.DREAM_READ, 5, run="r-2", session="s", upto=10, status="completed", artifacts=["i-1"])
    lost = fold([done, begun, again, read]).dreamed["s"]
    assert (lost.status, lost.read) == (dreams.PENDING, 0), "the disk kept the end of what was written, and lost what it gave"
    memory = fold([done, begun, again, insight("i-1"), read])
    assert (memory.dreamed["s"].status, memory.dreamed["s"].attempts, memory.dreamed["s"].read) == (dreams.COMPLETED, 0, 10)
    more = event(Kind.SESSION_COMPLETED, 6, session="s", seq=20, reason="ended")
    memory = fold([done, begun, again, insight("i-1"), read, more])
    assert (memory.dreamed["s"].status, memory.dreamed["s"].finished, memory.dreamed["s"].read) == (dreams.PENDING, 20, 10)


def test_a_failure_keeps_its_reason_and_its_attempts() -> None:
    """D11"""
    done = event(Kind.SESSION_COMPLETED, 1, session="s", seq=10, reason="ended")
    told = [done]
    for n in range(3):
        told.append(event(Kind.DREAM_STARTED, 2, run=f"r-{n}", trigger="manual", sessions=[{"session": "s"}]))
        told.append(event(Kind.DREAM_READ, 2, run=f"r-{n}", session="s", upto=4, status="failed", reason=f"why {n}"))
    found = fold(told).dreamed["s"]
    assert (found.status, found.attempts, found.failure, found.read) == (dreams.FAILED, 3, "why 2", 4)
    told.append(event(Kind.DREAM_STARTED, 3, run="r-9", trigger="manual", sessions=[{"session": "s"}]))
    told.append(event(Kind.DREAM_READ, 3, run="r-9", session="s", upto=6, status="pending"))
    found = fold(told).dreamed["s"]
    assert (found.status, found.attempts, found.read) == (dreams.PENDING, 3, 6), "put off (no budget) is no failure"


def test_a_malformed_event_is_counted_and_changes_nothing() -> None:
    """D26"""
    good = [insight("i-1"), a_note("n-1", "i-1")]
    bad = [
        event(Kind.INSIGHT_ADDED, id="x", type="nonsense", text="t", evidence=[]),
        event(Kind.INSIGHT_ADDED, id="x"),
        event(Kind.NOTE_PINNED, id="unknown"),
        event(Kind.SESSION_COMPLETED, session="s", seq="ten"),
        event(Kind.DREAM_STARTED, run="r", trigger="t", sessions=7),
    ]
    memory = fold([*bad, *good, *bad])
    assert memory.malformed == 10 and rows(memory) == rows(fold(good))


def test_a_dead_run_of_another_keep_does_not_reopen_sessions_that_were_read_here() -> None:
    """R4"""
    done = event(Kind.SESSION_COMPLETED, session="s", seq=10, reason="ended")
    ours = event(Kind.DREAM_STARTED, run="r-1", trigger="manual", sessions=[{"session": "s"}])
    read = event(Kind.DREAM_READ, run="r-1", session="s", upto=10, status="completed")
    theirs = event(Kind.DREAM_STARTED, run="r-2", trigger="manual", sessions=[{"session": "s"}])
    found = fold([done, ours, read, theirs]).dreamed["s"]
    assert (found.status, found.attempts) == (dreams.COMPLETED, 0)


def test_a_projects_active_notes_and_fingerprint_follow_every_change() -> None:
    memory = fold([insight("i-1"), a_note("n-1", "i-1"), a_note("n-2", "i-1", project=""), a_note("n-3", "i-1", project="q")])
    assert {one.id for one in memory.active_notes("p")} == {"n-1", "n-2"} and {one.id for one in memory.active_notes("")} == {
        "n-2"
    }
    before = memory.page_fingerprint("p"), memory.page_fingerprint("q")
    memory.apply(event(Kind.NOTE_RETRACTED, id="n-1"))
    assert {one.id for one in memory.active_notes("p")} == {"n-2"}
    assert memory.page_fingerprint("p") != before[0] and memory.page_fingerprint("q") == before[1]


def test_no_malformed_body_stops_the_fold() -> None:
    """M4: another program wrote into the journal, or a snapshot came from one."""
    values: list[Any] = [None, 7, "x", ["x"], {"x": []}, 10**400, float("inf")]
    names = ("run", "id", "session", "sessions", "seq", "upto", "status", "next", "insights", "evidence", "confidence", "report")
    for kind in sorted(_HANDLERS):
        for value in values:
            bodies = [{name: value} for name in names] + [dict.fromkeys((*names, "trigger", "type", "project", "path"), value)]
            memory = fold([insight("i-1"), *(Event("e", kind, at(1), body) for body in bodies), a_note("n-1", "i-1")])
            assert "n-1" in memory.notes, kind


def test_a_deleted_session_does_not_wait_for_a_dream_and_is_read_in_full_if_it_comes_back() -> None:
    done = event(Kind.SESSION_COMPLETED, session="s", seq=10, reason="ended")
    gone = event(Kind.SESSION_DELETED, session="s")
    memory = fold([done])
    memory.changed()
    memory.apply(gone)
    assert memory.changed() == {("dreamed", "s"): None}
    back = event(Kind.SESSION_COMPLETED, session="s", seq=3, reason="ended")
    assert fold([done, gone, back]).dreamed["s"].finished == 3


def test_a_run_that_dies_counts_an_attempt_for_one_session_only() -> None:
    """M1 D11: a machine that is switched off five times must not poison what was never looked at."""
    told = [event(Kind.SESSION_COMPLETED, session=s, seq=10, reason="ended") for s in ("a", "b", "c")]
    listed = [{"session": s} for s in ("a", "b", "c")]
    told.append(event(Kind.DREAM_STARTED, run="r-1", trigger="manual", sessions=listed))
    assert [one.attempts for one in fold(told).dreamed.values()] == [1, 0, 0]
    told.append(event(Kind.DREAM_READ, run="r-1", session="a", upto=10, status="completed", next="b"))
    assert [one.attempts for one in fold(told).dreamed.values()] == [0, 1, 0]


def test_ids_ignore_case_and_spaces_and_nothing_else() -> None:
    """D5"""
    assert insight_id("python:sess-1", "decision", "Use  X.") == insight_id("python:sess-1", "decision", "use x")
    assert insight_id("python:sess-1", "decision", "q") != insight_id("python:sess-12", "decision", "q")
    assert insight_id("python:a", "decision", "q") != insight_id("python:A", "decision", "q")
    assert note_id("p", "decision", "x") != note_id("p", "constraint", "x")


_IDS = st.sampled_from(["1", "2", "3"])
_RUNS = st.sampled_from(["", "r-1", "r-2"])
_EVENTS = st.one_of(
    st.builds(lambda n, run, kind: insight(f"i-{n}", run=run, type=kind), _IDS, _RUNS, st.sampled_from(TYPES)),
    st.builds(lambda n, m, run: a_note(f"n-{n}", f"i-{m}", run=run), _IDS, _IDS, _RUNS),
    st.builds(lambda n, m, run: event(Kind.NOTE_STRENGTHENED, id=f"n-{n}", insights=[f"i-{m}"], run=run), _IDS, _IDS, _RUNS),
    st.builds(
        lambda kind, n, run: event(kind, id=f"n-{n}", by="n-1", reason="r", run=run),
        st.sampled_from([Kind.NOTE_SUPERSEDED, Kind.NOTE_CLOSED, Kind.NOTE_RETRACTED, Kind.NOTE_PINNED, Kind.NOTE_UNPINNED]),
        _IDS,
        _RUNS,
    ),
    st.builds(lambda n, kind: event(kind, id=f"i-{n}"), _IDS, st.sampled_from([Kind.INSIGHT_REJECTED, Kind.INSIGHT_CONFIRMED])),
    st.builds(lambda run: event(Kind.DREAM_UNDONE, run=run), st.sampled_from(["r-1", "r-2"])),
    st.builds(lambda seq: event(Kind.SESSION_COMPLETED, session="s", seq=seq), st.integers(1, 30)),
    st.builds(
        lambda run: event(Kind.DREAM_STARTED, run=run, trigger="t", sessions=[{"session": "s"}]), st.sampled_from(["r-1", "r-2"])
    ),
    st.builds(
        lambda run, last, how: event(Kind.DREAM_READ, run=run, session="s", upto=last, status=how),
        st.sampled_from(["r-1", "r-2"]),
        st.integers(1, 30),
        st.sampled_from(["completed", "failed"]),
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_EVENTS, max_size=25), st.lists(st.integers(0, 25), max_size=4))
def test_a_fold_that_continues_from_its_rows_gives_the_same_as_a_fold_from_zero(told: list[Event], stops: Sequence[int]) -> None:
    """D34: as an index does it: rows out, rows in, and from zero again when a run was undone."""
    kept: dict[tuple[str, str], Any] = {}
    done: list[Event] = []
    for start, end in zip([0, *sorted(stops)], [*sorted(stops), len(told)], strict=True):
        memory = Memory.load((table, id, json.loads(json.dumps(body))) for (table, id), body in kept.items())
        for one in told[start:end]:
            memory.apply(one)
            done.append(one)
        if memory.needs_refold:
            memory = fold(done, memory.undone)
            kept = {}
        for key, body in memory.changed().items():
            if body is None:
                kept.pop(key, None)
            else:
                kept[key] = body
    whole = fold(told)
    assert {k: json.loads(json.dumps(v)) for k, v in kept.items()} == {
        key: json.loads(json.dumps(body)) for key, body in whole.changed().items() if body is not None
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(_EVENTS, max_size=40))
def test_derived_tables_agree_with_a_scan_of_all_notes(told: list[Event]) -> None:
    memory = fold(told)
    for project in ("", *{one.project for one in memory.notes.values()}):
        active = [one.id for one in memory.notes.values() if one.state == "active" and one.project in ("", project)]
        assert sorted(one.id for one in memory.active_notes(project)) == sorted(active)
    for id in memory.insights:
        resting = {one.id for one in memory.notes.values() if id in one.insights}
        assert resting <= set(memory.rests.get(id, {}).get("notes", ()))


def test_every_kind_of_memory_event_has_a_handler() -> None:
    named = {value for name, value in vars(Kind).items() if name.startswith(("INSIGHT_", "NOTE_", "TASK_", "DREAM_"))}
    assert named <= _HANDLERS.keys()


@settings(max_examples=300, deadline=None)
@given(st.lists(_EVENTS, max_size=25), st.lists(_EVENTS, max_size=6))
def test_rows_that_are_fetched_on_demand_give_what_all_rows_give(before: list[Event], now: list[Event]) -> None:
    """D34 B5: a few events cost a few rows, and the answer is the same."""
    whole = fold(before)
    rows = {(table, id): json.loads(json.dumps(body)) for (table, id), body in whole.changed().items() if body is not None}
    eager = Memory.load((table, id, body) for (table, id), body in rows.items())
    lazy = Memory.on_demand(
        lambda table, id: rows.get((table, id)), lambda table: [(id, body) for (t, id), body in rows.items() if t == table]
    )
    for one in now:
        eager.apply(one)
        lazy.apply(one)
    assert (lazy.changed(), lazy.needs_refold, lazy.malformed) == (eager.changed(), eager.needs_refold, eager.malformed)
    for table in ("notes", "insights", "dreamed", "runs", "tasks", "pages"):
        assert dict(getattr(lazy, table).items()) == getattr(eager, table)
