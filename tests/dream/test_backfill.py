"""Nothing ungrounded gets through, whatever a backend says; and one bad item loses only itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from dreamkeep.dream.backends.api import Answer, Given, GivenMessage, Proposal, TaskGiven, TurnGiven
from dreamkeep.dream.backends.checks import KnownInsights, checked, turns_given
from dreamkeep.errors import NoAnswer
from dreamkeep.memory.insight import TYPES
from dreamkeep.session.messages import Message
from dreamkeep.session.turns import TurnView

SAID = (
    GivenMessage("4.1", "user", "Prices are integers,\nin cents. Never floats!", "2026-01-02T00:00:00Z"),
    GivenMessage("4.2", "assistant", "Understood.", "2026-01-02T00:00:01Z"),
    GivenMessage("5", "assistant", "", "2026-01-02T00:00:02Z", {"name": "Bash", "input": {"command": "make test-all"}}),
    GivenMessage("6", "tool", "all passed", None),
    GivenMessage("7", "summary", "Prices are integers", None),
    GivenMessage("8", "user", "Prices are integers", None, None, "copied"),
    GivenMessage("9", "user", "Prices are integers", None, None, "injected"),
)
GIVEN = Given(
    "python:s",
    "python",
    "proj",
    "/",
    "",
    (TaskGiven("t-1", "prices"), TaskGiven("t-2", "other")),
    (
        TurnGiven("old", "completed", (GivenMessage("2", "user", "Prices are integers"),), known=True),
        TurnGiven("t", "completed", SAID),
    ),
)


def proposal(**more: Any) -> Proposal:
    said = {
        "type": "constraint",
        "text": "Prices are integers, in cents.",
        "seq": "4.1",
        "quote": "Prices are integers,\nin cents.",
    }
    return Proposal(**{**said, **more})


def check(*proposals: object, known: KnownInsights | None = None) -> tuple[list[Any], dict[str, int]]:
    found = checked(list(proposals), GIVEN, known or KnownInsights(), run="r", redact=lambda text: text.replace("floats", "***"))
    return found.insights, dict(found.dropped)


def test_who_said_it_and_when_is_taken_from_the_record() -> None:
    """D14 D25: not from the backend."""
    [one], dropped = check(proposal(author="agent", confidence=7))
    assert (one.author, one.said_at, one.confidence, one.run, one.project) == ("user", "2026-01-02T00:00:00Z", 1.0, "r", "proj")
    assert [tuple(quote) for quote in one.evidence] == [
        ("python:s", "4.1", "t", "Prices are integers,\nin cents.", "user", "typed")
    ]
    assert one.task == "t-1" and dropped == {}
    [one], _ = check(proposal(seq="4.2", quote="Understood", author="user"))
    assert one.author == "agent"
    [one], _ = check(proposal(type="procedure", seq="5", quote="make test-all"))
    assert one.evidence[0].quote == "make test-all"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"type": "close"}, "unknown type"),
        ({"type": "Constraint"}, "unknown type"),
        ({"task": "t-99"}, "unknown task"),
        ({"seq": "99"}, "a place that was not given"),
        ({"seq": "2", "quote": "Prices are integers"}, "a place that was not given"),
        ({"quote": "Prices are floats"}, "a quote that is not there"),
        ({"quote": ""}, "a quote that is not there"),
        ({"quote": " \n "}, "a quote that is not there"),
        ({"seq": "7", "quote": "Prices are integers"}, "not somebody's own words"),
        ({"seq": "8", "quote": "Prices are integers"}, "not somebody's own words"),
        ({"seq": "9", "quote": "Prices are integers"}, "not somebody's own words"),
        ({"text": ""}, "malformed"),
        ({"text": "x" * 601}, "malformed"),
        ({"text": None}, "malformed"),
        ({"confidence": float("nan")}, "malformed"),
        ({"confidence": "high"}, "malformed"),
        ({"more": "x"}, "malformed"),
        ({"seq": 4}, "malformed"),
    ],
)
def test_what_does_not_hold_is_dropped_with_its_reason_and_alone(bad: dict[str, Any], why: str) -> None:
    """D24 D25 D26 D33: foreign types, invented tasks and places, quotes not there, summaries, copies, recalled memory."""
    good = proposal(type="procedure", seq="5", quote="make test-all")
    insights, dropped = check(proposal(**bad), good, proposal(**bad))
    assert [one.type for one in insights] == ["procedure"] and dropped == {why: 2}


def test_doubles_are_dropped_inside_a_reply_and_across_runs() -> None:
    """D24 M7"""
    known = KnownInsights()
    first, dropped = check(
        proposal(), proposal(), proposal(quote="Never floats", text="prices are integers, in CENTS"), known=known
    )
    assert len(first) == 1 and dropped == {"duplicate": 2}
    assert check(proposal(), known=KnownInsights(first)) == ([], {"duplicate": 1})


def test_secrets_are_redacted_in_text_and_quote() -> None:
    """M12"""
    [one], _ = check(proposal(text="Never floats", quote="Never floats!"))
    assert (one.text, one.evidence[0].quote) == ("Never ***", "Never ***!")


def test_a_quote_whose_blanks_differ_is_taken_as_it_stands_there() -> None:
    [one], _ = check(proposal(quote="integers, in cents. Never"))
    assert one.evidence[0].quote == "integers,\nin cents. Never"


_JUNK = st.one_of(
    st.none(),
    st.text(),
    st.integers(),
    st.dictionaries(st.text(), st.text()),
    st.builds(
        Proposal,
        st.sampled_from([*TYPES, "close", ""]) | st.none(),
        st.text(max_size=30) | st.just("x"),
        st.sampled_from(["4.1", "4.2", "5", "7", "99", "2"]),
        st.sampled_from(["Prices", "make test-all", "nothing", "Understood.", ""]) | st.text(max_size=5),
    ),
)


@pytest.mark.parametrize(
    "answer",
    [None, 7, "words", b"bytes", {"insights": []}, [{"type": "constraint"}], Answer(None)],  # type: ignore[arg-type]
)
def test_a_reply_that_lists_nothing_is_no_answer_and_not_an_empty_one(answer: object) -> None:
    """M6"""
    with pytest.raises(NoAnswer, match="instead of"):
        checked(answer, GIVEN, KnownInsights(), run="r", redact=str)


@examples(st.lists(_JUNK, max_size=12) | _JUNK)
def test_whatever_a_backend_answers_only_grounded_insights_come_out(answer: object) -> None:
    try:
        found = checked(answer, GIVEN, KnownInsights(), run="r", redact=str)
    except NoAnswer:
        assert not isinstance(answer, list) or not any(isinstance(one, Proposal) for one in answer)
        return
    words = {said.seq: said.text + str(said.tool) for said in SAID}
    for one in found.insights:
        assert one.type in TYPES and one.evidence[0].quote in words[one.evidence[0].seq]
    assert checked(Answer(()), GIVEN, KnownInsights(), run="r", redact=str).insights == []


def test_only_the_new_part_of_a_session_is_given_with_a_little_before_it() -> None:
    """D20 M2"""
    turns = [TurnView(f"t{n}", n * 10, "completed", "p") for n in range(1, 6)]
    said = [Message(n * 10 + k, 0, "user", f"{n}.{k}", None, f"t{n}" if k < 2 else None) for n in range(1, 6) for k in range(3)]
    found = turns_given(turns, said, 40, 45)
    assert [(turn.id, turn.known, len(turn.messages)) for turn in found] == [("t2", True, 3), ("t3", True, 3), ("t4", False, 3)]
    assert turns_given(turns, said, 60, 70) == []
    assert [turn.known for turn in turns_given(turns, said, 1, 99)] == [False] * 5
