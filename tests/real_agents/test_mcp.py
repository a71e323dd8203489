"""Real agents, set up by `init`, call our MCP server; what they were answered reaches the model, and is never learned again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.backends.api import Given, Proposal
from dreamkeep.session.reading.own_answers import is_our_tool
from tests.real_agents.agents import AGENTS, Agent, installed, only_by_make

pytestmark = only_by_make

#: Nobody is there to be asked whether a tool may be called.
FREE = {
    "claude": ("--allowedTools=mcp__dreamkeep__search",),
    "codex": ("--dangerously-bypass-approvals-and-sandbox",),
    "gemini": ("--yolo",),
    "hermes": ("--yolo",),
}
RECALLED = "The staging database is rebuilt every night at three."


class Greedy:
    """A backend that learns the recalled sentence from wherever it stands."""

    def backfill(self, given: Given) -> list[Proposal]:
        said = [one for turn in given.turns for one in turn.messages if RECALLED in one.text]
        return [Proposal("finding", RECALLED, one.seq, RECALLED) for one in said]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_searches_and_what_it_recalled_is_not_learned_again(
    name: str, agent_in: Callable[[str, str], Agent], keep: Keep
) -> None:
    if name == "hermes" and not list(Path(installed(name)).parent.glob("lib/python*/site-packages/mcp/__init__.py")):
        pytest.skip("this Hermes has no MCP client")
    keep.note_add(RECALLED, kind="finding")
    agent = agent_in(name, "home")._replace(more=FREE[name])
    agent.stub.call = ("search", {"query": "staging database"})
    agent.settings()
    assert {one["action"] for one in keep.init(agents=[name], home=agent.home)} <= {"install", "update"}
    request = json.dumps(agent.turn("What do we know of the database?"))
    assert is_our_tool(agent.stub.called), agent.stub.called
    assert RECALLED in request, "the agent passes our answer on to its model"
    assert [one.problem for one in keep.ingest(agents=[name], home=agent.home) if one.problem] == []
    keep.drain()
    session = max((one for one in keep.sessions() if one.agent == name), key=lambda one: one.messages)
    results: list[dict[str, Any]] = [
        m for m in keep.show(session.id)["messages"] if m["role"] == "tool" and RECALLED in m["text"]
    ]
    assert results and all(one.get("mark") == "injected" for one in results)
    keep.end(session.id)
    made = keep.dream(backend=Greedy(), sessions=[session.id])
    assert made["processed"] == 1 and made["insights_added"] == 0, made
