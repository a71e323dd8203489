"""A2, D33: real agents with our hooks read the pack when they start, and what they write down of it is never learned again.

Run by `make test-agents`, as agents.py says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from tests.real_agents.agents import AGENTS, Agent, only_by_make

pytestmark = only_by_make

LEARNED = "We never deploy on Fridays."
NEW = "We always squash commits before merging."
#: What a user has to agree to by hand: Codex and Hermes run no hook that nobody allowed.
ALLOWED = {"codex": ("--dangerously-bypass-hook-trust",), "hermes": ("--accept-hooks",)}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_starts_reads_the_pack_and_nothing_of_it_is_learned(
    name: str, agent_in: Callable[[str, str], Agent], keep: Keep, tmp_path: Path
) -> None:
    agent = agent_in(name, "home")._replace(more=ALLOWED.get(name, ()))
    agent.settings()
    assert [one for one in keep.init(agents=[name], home=agent.home) if one["action"] in ("refused", "failed")] == []
    before = keep.session("before", cwd=agent.work)
    before.record(LEARNED, ("assistant", "Understood."))
    before.end()
    keep.dream()
    request = json.dumps(agent.turn(NEW), ensure_ascii=False)
    assert f"{LEARNED} [n-" in request and "dreamkeep:pack v1" in request and NEW in request
    keep.drain()
    assert [one.problem for one in keep.ingest(agents=[name], home=agent.home) if one.problem] == []
    for one in keep.sessions():
        keep.end(one.id)
    keep.dream()
    notes = {one["text"]: {quote["session"] for quote in one["evidence"]} for one in keep.notes()}
    assert notes[LEARNED] == {"python:before"}, "no second session says so"
    assert any(text.startswith("We always squash") for text in notes), notes
    assert {hit.session for hit in keep.search("deploy on Fridays")} == {"python:before"}
