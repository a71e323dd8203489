"""The written sessions are what they say: whole, known to the reader of the agent's format, with all that is planted in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dreamkeep import Keep
from tests.planted import into, written
from tests.planted.written import Written

SESSIONS = written.load(written.SERIES)
NAMES = [one.name for one in SESSIONS]
_STATES = {"completed": "completed", "interrupted": "cancelled", "crashed": "interrupted"}
#: In the place of an exit code: the user did not let the call happen.
REFUSED = -99

Shown = dict[str, Any]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keep]:
    """All of them in one home, as on a real machine, and ingested."""
    place = tmp_path_factory.mktemp("planted")
    into.write(SESSIONS, place / "home")
    with Keep.open(place / "keep", environment={}) as keep:
        found = list(keep.ingest(home=place / "home"))
        assert [one for one in found if one.problem] == []
        into.record(SESSIONS, keep)
        yield keep


@pytest.mark.parametrize("session", SESSIONS, ids=NAMES)
def test_a_written_session_keeps_the_rules_of_its_form(session: Written) -> None:
    assert written.wrong_with(session) == []


def test_the_written_sessions_agree_with_each_other() -> None:
    assert written.wrong_together(SESSIONS) == []


def test_there_is_enough_of_everything_in_the_series() -> None:
    assert len(SESSIONS) >= 64
    assert len({one.agent for one in SESSIONS}) >= 5
    assert len({one.cwd for one in SESSIONS}) >= 28
    assert sum(len(one.expect) for one in SESSIONS) >= 260
    assert sum(len(one.decoys) for one in SESSIONS) >= 450
    assert {kind for one in SESSIONS for wanted in one.expect for kind in wanted.types} == written.TYPES


def test_in_the_series_a_fact_is_told_again_and_one_is_superseded() -> None:
    wanted = [one for session in SESSIONS for one in session.expect]
    told = [one.fact for one in wanted if one.fact and not one.supersedes]
    assert any(told.count(fact) > 1 for fact in told)
    assert any(one.supersedes for one in wanted)


def test_some_sessions_are_short_and_some_are_long() -> None:
    lengths = [len(one.turns) for one in SESSIONS]
    assert min(lengths) <= 3 and max(lengths) >= 40


@pytest.mark.parametrize("session", SESSIONS, ids=NAMES)
def test_a_written_session_is_captured_as_it_is_written(session: Written, captured: Keep) -> None:
    shown = captured.show(session.id)
    assert shown["session"]["cwd"] == session.cwd
    assert [(one["prompt"], one["state"]) for one in shown["turns"]] == [
        (turn.prompt, "interrupted" if (session.agent, turn.end) == ("hermes", "interrupted") else _STATES[turn.end])
        for turn in session.turns
    ]
    assert not shown.get("odd") and not shown.get("unknown")
    assert missing(shown["messages"], session) == []


@pytest.mark.parametrize("session", SESSIONS, ids=NAMES)
def test_quotes_and_decoys_are_in_what_was_captured(session: Written, captured: Keep) -> None:
    shown = captured.show(session.id)
    plain = [text for one in shown["messages"] if not one.get("mark") and one["role"] != "summary" for text in said(one)]
    lost = [one.quote for one in (*session.expect, *session.optional) if not any(one.quote in text for text in plain)]
    assert lost == []
    children = [one.id for one in captured.sessions() if any(edge["session"] == session.id for edge in lineage(captured, one.id))]
    wanted = sum(isinstance(step, written.Subagent) for step in session.steps())
    assert len(children) == wanted
    everything = [text for name in (session.id, *children) for one in captured.show(name)["messages"] for text in said(one)]
    assert [decoy for decoy in session.decoys if not any(decoy in text for text in everything)] == []


@pytest.mark.parametrize("session", SESSIONS, ids=NAMES)
def test_what_must_not_be_learned_is_marked_or_apart(session: Written, captured: Keep) -> None:
    """D33: packs and summaries can be told from what was said."""
    messages = captured.show(session.id)["messages"]
    packs = [one for one in messages if written.PACK in one["text"]]
    summaries = [one for one in messages if one["role"] == "summary"]
    assert len(packs) == sum(isinstance(step, written.Pack) for step in session.steps())
    assert all(one.get("mark") in ("injected", "hook") or session.agent == "python" for one in packs)
    assert len(summaries) == sum(isinstance(step, written.Compaction) for step in session.steps())


def lineage(keep: Keep, session: str) -> list[Shown]:
    found: list[Shown] = keep.show(session)["session"]["lineage"]
    return found


def said(message: Shown) -> Iterator[str]:
    """All texts of a message: its words, what a tool was given, and what stands in JSON that a tool gave back."""
    yield message["text"]
    yield from written.strings((message.get("tool") or {}).get("input"))
    if message["role"] == "tool" and message["text"].startswith("{"):
        yield from written.strings(json.loads(message["text"]))


def missing(messages: list[Shown], session: Written) -> list[tuple[str, str]]:
    """What the session says, in its order, that is not found in that order."""
    lost = []
    at = 0
    for role, text, code in spoken(session):
        places = (n for n in range(at, len(messages)) if is_it(messages[n], role, text, code, session.agent))
        found = next(places, None)
        if found is None:
            lost.append((role, text))
        else:
            at = found + 1
    return lost


def is_it(message: Shown, role: str, text: str, code: int | None, agent: str) -> bool:
    if message["role"] != role or not any(text in one for one in said(message)):
        return False
    if code == REFUSED:
        return bool(message["tool"]["error"]) and message["tool"].get("exit_code") != 0
    if not code:
        return True
    if agent == "gemini":
        return f"Exit Code: {code}" in message["text"]
    return bool(message["tool"]["error"]) and message["tool"]["exit_code"] == code


def spoken(session: Written) -> Iterator[tuple[str, str, int | None]]:
    for turn in session.turns:
        yield "user", turn.prompt, None
        for step in turn.steps:
            match step:
                case written.Say(text):
                    yield "assistant", text, None
                case written.Think(text):
                    yield "reasoning", text, None
                case written.Compaction(text):
                    yield "summary", text, None
                case written.Run(command, output, code):
                    yield "assistant", command, None
                    yield "tool", output, code
                case written.Rejected(_, given, why):
                    yield "assistant", next(written.strings(given)), None
                    yield "tool", why, REFUSED
                case written.Plan(text, approved, why):
                    yield "assistant", text, None
                    yield "tool", why, None if approved else REFUSED
                case written.Ask(question, _, answer):
                    yield "assistant", question, None
                    yield "tool", answer, None
                case written.Todo(entries):
                    yield "assistant", entries[0][0], None
