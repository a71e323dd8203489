"""What our own tools answered is known again in a captured session, however its agent spells and wraps it, and never learned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.backends.api import Given, Proposal
from dreamkeep.session.messages import Message
from dreamkeep.session.reading.own_answers import TOOLS, is_our_answer, is_our_tool, recalled
from dreamkeep.surfaces.mcp import tools
from dreamkeep.surfaces.mcp.calls import Tools
from dreamkeep.surfaces.mcp.protocol import ToolCall
from tests.planted import into
from tests.planted.written import Say, Tool, Turn, Written

#: As the agents' own clients name the tool of a server called `dreamkeep`.
SPELLED = {
    "claude": "mcp__dreamkeep__{}",
    "codex": "mcp__dreamkeep__{}",
    "gemini": "mcp_dreamkeep_{}",
    "hermes": "mcp__dreamkeep__{}",
    "opencode": "dreamkeep_{}",
    "python": "dreamkeep/{}",
}
RECALLED = "The staging database is rebuilt every night at three."


def test_every_tool_is_known_by_every_spelling() -> None:
    assert tools.NAMES == TOOLS
    more = ("mcp__plugin_dreamkeep_dreamkeep__{}", "dreamkeep-{}", "dreamkeep__{}", "mcp.dreamkeep.{}", "Tool: dreamkeep/{}")
    for form in (*SPELLED.values(), *more, "{} (dreamkeep MCP Server)"):
        for name in TOOLS:
            assert is_our_tool(form.format(name)), form.format(name)


@pytest.mark.parametrize(
    "name",
    [
        *("search", "Bash", "", None, 7, "mcp__memo__search", "dreamkeep", "dreamkeep_searching", "mydreamkeep_search"),
        *("dreamkeepsearch", "grep dreamkeep_x search", "cat dreamkeep/search.py", "x" * 1000 + "dreamkeep_search"),
    ],
)
def test_other_tools_are_not_ours(name: Any) -> None:
    assert not is_our_tool(name)


def test_a_result_belongs_to_the_last_call_of_its_id() -> None:
    def said(seq: int, role: str, **tool: Any) -> Message:
        return Message(seq, 0, role, "words", None, None, tool)

    talk = [
        said(1, "assistant", id="a", name="mcp__dreamkeep__search", input={}),
        said(2, "tool", id="a"),
        said(3, "assistant", id="a", name="Bash", input={}),
        said(4, "tool", id="a"),
        said(5, "tool", id="b", name="dreamkeep-why"),
        said(6, "tool", id="c"),
    ]
    assert recalled(talk) == {(2, 0), (5, 0)}


@pytest.fixture
def answer(tmp_path: Path) -> str:
    """What `search` really answers, as text."""
    root = tmp_path / "other"
    with Keep.open(root) as keep:
        keep.note_add(RECALLED, kind="finding")
    said = json.loads(Tools(lambda: Keep.open(root)).answer(ToolCall(1, "search", {"query": "staging database"}, False)))
    text: str = said["result"]["content"][0]["text"]
    assert RECALLED in text and not said["result"]["isError"]
    return text


def wrapped(answer: str) -> Iterator[tuple[str, str, bool]]:
    """(what, the answer as an agent may write it down, whether its mark is still there)."""
    found = json.loads(answer)
    yield "as it is", answer, True
    yield "members sorted", json.dumps(found, sort_keys=True), True
    yield "wrapped", json.dumps({"content": [{"type": "text", "text": answer}], "structuredContent": found}), True
    yield "escaped", json.dumps(answer).replace("<", "\\u003c"), True
    yield "end cut off", answer[: answer.index(RECALLED) + len(RECALLED)], True
    yield "beginning cut off", answer[answer.index(RECALLED) :], False


def test_an_answer_is_known_by_its_mark(answer: str) -> None:
    for what, text, marked in wrapped(answer):
        assert is_our_answer(text) == marked, what


class Greedy:
    """A backend that learns the recalled sentence from wherever it stands."""

    def backfill(self, given: Given) -> list[Proposal]:
        said = [one for turn in given.turns for one in turn.messages if RECALLED in one.text]
        return [Proposal("finding", RECALLED, one.seq, RECALLED) for one in said]


def session(agent: str, tool: str, output: str, n: int = 0) -> Written:
    steps = (Tool(tool, {"query": "staging database"}, output, False), Say("It is rebuilt at night."))
    turn = Turn(f"What do we know of database {n}?", None, steps, "completed")
    id = f"7d3f0f3e-0c1b-4a52-9a55-0d4c7f6f2a1{n}"
    return Written("x", agent, id, "/home/dev/work", datetime(2026, 5, 4, 9 + n, tzinfo=UTC), "", "", (turn,), (), (), ())


def dreamed(root: Path, backend: Any, *sessions: Written) -> dict[str, Any]:
    home = root / "home"
    home.mkdir(parents=True)
    with Keep.open(root / "keep") as keep:
        into.write(sessions, home)
        into.record(sessions, keep)
        list(keep.ingest(home=home))
        for one in keep.sessions():
            keep.end(one.id)
        made = keep.dream(backend=backend)
        assert made["processed"] == len(sessions), made
        return made


@pytest.mark.parametrize("agent", SPELLED)
def test_what_an_agent_recalled_is_not_learned_again(tmp_path: Path, answer: str, agent: str) -> None:
    """D33: by rules nothing, and of what a model says nothing."""
    name = SPELLED[agent].format("search")
    sessions = [session(agent, name, text, n) for n, (_, text, _) in enumerate(wrapped(answer))]
    # Where a client calls deferred tools through one of its own, the mark alone tells.
    sessions.append(session(agent, "tool_call", answer, len(sessions)))
    made = dreamed(tmp_path / "greedy", Greedy(), *sessions)
    assert made["insights_added"] == 0, made
    assert dreamed(tmp_path / "rules", None, *sessions)["insights_added"] == 0
    if agent != "python":  # what one's own agent records is taken as it is said; a dream knows it by name
        assert _marks(tmp_path / "rules" / "keep") == {f"{agent}:{one.session}": not cut for one, cut in _told(sessions)}


def _told(sessions: list[Written]) -> list[tuple[Written, bool]]:
    """Each with whether the mark was cut off."""
    outputs = [step.output for one in sessions for step in one.steps() if isinstance(step, Tool)]
    return [(one, not is_our_answer(output)) for one, output in zip(sessions, outputs, strict=True)]


def _marks(root: Path) -> dict[str, bool]:
    """Of each session whether what its tool said bears a mark: then nobody who reads the index takes it for somebody's words."""
    with Keep.open(root) as keep:
        said = {one.id: [m for m in keep.show(one.id)["messages"] if m["role"] == "tool"] for one in keep.sessions()}
    return {id: all(one.get("mark") == "injected" for one in results) for id, results in said.items()}


@pytest.mark.parametrize("agent", SPELLED)
def test_what_another_tool_said_is_somebodys_and_shows_nothing_by_itself(tmp_path: Path, agent: str) -> None:
    """So that the test above could fail."""
    written = session(agent, "mcp__memo__search", f"memo: {RECALLED}")
    made = dreamed(tmp_path, Greedy(), written)
    assert (made["insights_added"], made["dropped"]) == (0, [{"why": "only tool output shows it", "count": 1}])
