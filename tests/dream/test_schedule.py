"""Which sessions are dreamed, and when: pure, and no clock or garbage can wedge it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep.dream.schedule import (
    SESSION_COUNT,
    TIME_ELAPSED,
    Settings,
    describe_given_up,
    due,
    eligibility,
    given_up,
    may_retry,
    select,
    waiting,
)
from dreamkeep.memory.dreams import COMPLETED, FAILED, PENDING, RUNNING, DreamProgress

NOW = "2026-03-10T12:00:00Z"


def one(session: str = "s", **more: object) -> DreamProgress:
    return DreamProgress(session, **{"finished": 10, "completion_at": "2026-03-10T00:00:00Z", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "running", "said"),
    [
        (None, False, "not_completed"),
        (one(finished=0), False, "not_completed"),
        (one(), False, "eligible"),
        (one(status=RUNNING, attempts=1), True, "running"),
        (one(status=RUNNING, attempts=1), False, "retry_after_failure"),
        (one(status=FAILED, attempts=1), False, "retry_after_failure"),
        (one(status=FAILED, attempts=5), False, "poisoned"),
        (one(status=COMPLETED, read=10), False, "already_consolidated"),
        (one(status=COMPLETED, read=10), True, "already_consolidated"),
        (one(status=PENDING, read=10, finished=20), False, "eligible"),
    ],
)
def test_each_session_is_said_to_be_what_it_is(of: DreamProgress | None, running: bool, said: str) -> None:
    """M1 D10: a failed one is not plainly eligible; D11: one that died in the middle is taken up again; D20."""
    assert eligibility(of, max_attempts=5, running=running) == said


def test_what_waits_is_oldest_completion_first() -> None:
    """M1 D19"""
    found = [one("b", completion_at="2026-03-02T00:00:00Z"), one("a", completion_at="2026-03-03T00:00:00Z"), one("done", read=10)]
    assert [x.session for x in waiting(found, max_attempts=5)] == ["b", "a"]


def asked(found: list[DreamProgress], last_success_at: str | None = None, **more: object) -> tuple[bool, str]:
    made = Settings(**{"session_count": 5, "time_hours": 24.0, "max_attempts": 5, "loss_guard": 0.25, **more})  # type: ignore[arg-type]
    decision = due(found, now=NOW, last_success_at=last_success_at, settings=made)
    assert decision.waiting == len(found) and decision.why
    return decision.due, decision.trigger


def test_triggers_are_a_count_or_a_time_with_something_waiting() -> None:
    """M4 D4: thresholds as they are set; without an earlier run time counts from the oldest completion."""
    assert asked([]) == (False, "")
    assert asked([one(str(n)) for n in range(5)]) == (True, SESSION_COUNT)
    assert asked([one(str(n)) for n in range(4)]) == (False, "")
    assert asked([one()], session_count=1) == (True, SESSION_COUNT)
    assert asked([one(completion_at="2026-03-09T12:00:00Z")]) == (True, TIME_ELAPSED)
    assert asked([one(completion_at="2026-03-01T00:00:00Z")], last_success_at="2026-03-10T11:00:00Z") == (False, "")
    assert asked([one()], last_success_at="2026-03-09T11:00:00Z") == (True, TIME_ELAPSED)
    assert asked([], last_success_at="2020-01-01T00:00:00Z") == (False, "")


@pytest.mark.parametrize("last", ["2030-01-01T00:00:00Z", "garbage", "", "2026-13-45T99:99:99Z", "0"])
def test_a_clock_set_back_or_garbage_never_wedges_it(last: str) -> None:
    """M4"""
    assert asked([one()], last_success_at=last or None, time_hours=1.0)[0]
    assert may_retry(one(status=FAILED, attempts=3, last_attempt_at=last or None), NOW)


def test_a_failure_is_tried_again_after_a_while_that_grows_and_is_bounded() -> None:
    """M1"""
    waits = []
    for attempts in range(1, 20):
        failed = one(status=FAILED, attempts=attempts, last_attempt_at="2026-03-10T00:00:00Z")
        waits.append(next(n for n in range(10**6) if may_retry(failed, f"2026-03-10T{n // 60:02d}:{n % 60:02d}:00Z")))
    assert waits[0] == 1 and waits == sorted(waits) and waits[-1] == 360
    every = {"s": one(status=FAILED, attempts=1, last_attempt_at=NOW)}
    settings = Settings(session_count=1, time_hours=1, max_attempts=5, loss_guard=0.25)
    by_itself, by_hand = (select(every, settings, now=NOW, if_due=if_due) for if_due in (True, False))
    assert by_itself.sessions == () and by_itself.why == "only 1 failed sessions are waiting, for a later retry"
    assert by_hand.sessions == (every["s"],)


@given(st.text(), st.text(), st.text())
def test_no_text_in_a_time_raises(completion: str, attempt: str, last: str) -> None:
    found = one(completion_at=completion, last_attempt_at=attempt, status=FAILED, attempts=1)
    asked([found], last_success_at=last)
    may_retry(found, NOW)


def test_what_one_backend_failed_at_too_often_another_one_may_try() -> None:
    """And whoever it was that failed, does not; nor is anything tried of which nobody knows who did."""
    failed = one(status=FAILED, attempts=5, backend="openai")
    assert [eligibility(failed, max_attempts=5, backend=name) for name in ("", "openai", "rules")] == [
        "poisoned",
        "poisoned",
        "retry_after_failure",
    ]
    assert eligibility(failed._replace(backend=""), max_attempts=5, backend="rules") == "poisoned"
    assert given_up([failed], max_attempts=5, backend="rules") == [] and describe_given_up([]) == ""
    assert describe_given_up(given_up([failed], max_attempts=5)).endswith("the dream crashed while reading it")
