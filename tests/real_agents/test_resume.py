"""R3: the agents' own resume takes what `restore` wrote, and the next request to the model holds the old turns.

`make test-agents` sets DREAMKEEP_AGENTS, a folder into which the agents are installed once (npm; Hermes from PyPI). Without it,
and where an agent can't be installed, these are skipped: they need a network, and minutes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.agents import registry
from tests.helpers.agent_samples import load_generator
from tests.real_agents.agents import AGENTS, Agent, only_by_make
from tests.real_agents.stub import ANSWER

NEXT = "And what is NEXT?"

pytestmark = only_by_make


@pytest.mark.parametrize("name", AGENTS)
def test_a_session_restored_byte_for_byte_goes_on(
    name: str, agent_in: Callable[[str, str], Agent], keep: Keep, tmp_path: Path
) -> None:
    agent = agent_in(name, "old")
    agent.turn("The word to be remembered is PELICAN.")
    assert [one.problem for one in keep.ingest(agents=[name], home=agent.home) if one.problem] == []
    session = max(keep.sessions(), key=lambda s: s.messages)
    shutil.rmtree(agent.home)
    done = keep.restore(session.id, name, home=tmp_path / "new")
    assert done["exact"], done
    request = json.dumps(agent_in(name, "new").turn(NEXT, done["native_id"]))
    assert "PELICAN" in request and ANSWER in request and NEXT in request


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("origin", AGENTS)
def test_a_session_of_another_agent_goes_on(
    origin: str, name: str, agent_in: Callable[[str, str], Agent], keep: Keep, tmp_path: Path
) -> None:
    """The current view: since the last compaction its summary and what follows, before it nothing."""
    load_generator(origin).write(tmp_path / "theirs")
    list(keep.ingest(agents=[origin], home=tmp_path / "theirs"))
    session = max((s for s in keep.sessions() if s.compactions), key=lambda s: s.messages)
    agent = agent_in(name, "new")
    done = keep.restore(session.id, name, home=agent.home, cwd=agent.work, convert=True)
    request = json.dumps(agent.turn(NEXT, done["native_id"]), ensure_ascii=False)
    messages = keep.show(session.id)["messages"]
    last = max(n for n, message in enumerate(messages) if message["role"] == "summary")
    for message in messages[last:]:
        if message["role"] in ("user", "assistant", "summary") and message["text"] and not message.get("mark"):
            assert json.dumps(message["text"], ensure_ascii=False)[1:-1] in request, message
        elif message["role"] == "assistant" and message.get("tool") and not message.get("mark"):
            assert message["tool"]["name"] in request
    first = next(m["text"] for m in messages if m["role"] == "user" and not m.get("mark"))
    assert json.dumps(first, ensure_ascii=False)[1:-1] not in request, "squeezed out"
    assert NEXT in request


def test_every_agent_whose_resume_is_told_is_tried_here() -> None:
    assert sorted(agent.name for agent in registry.agents() if agent.resume_command) == sorted(AGENTS)
