"""A2, D33: real agents with our hooks read the pack when they start, and what they write down of it is never learned again.

Run by `make test-agents`, as agents.py says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.recall import pack_files
from tests.real_agents.agents import AGENTS, Agent, only_by_make
from tests.real_agents.stub import _Handler

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


def test_codex_is_told_again_what_its_compaction_squeezed_out(
    agent_in: Callable[[str, str], Agent], keep: Keep, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the session itself, which no dream has read: while Codex waits for its model, the drainer reads it."""
    agent = agent_in("codex", "home")._replace(more=ALLOWED["codex"])
    agent.settings()
    keep.init(agents=["codex"], home=agent.home)
    agent.turn("We never use floats for prices.")
    keep.drain()
    [session] = [one.native_id for one in keep.sessions()]
    agent.turn("Rename the price column.", session)
    answer = _Handler.do_POST

    def takes_its_time(self: _Handler) -> None:
        for _ in range(300):
            if Path(root, pack_files.FOLDER, pack_files.session_file(f"codex:{session}") or "").is_file():
                break
            time.sleep(0.1)
        answer(self)

    monkeypatch.setattr(_Handler, "do_POST", takes_its_time)
    request = agent._replace(more=(*agent.more, "-c", "model_auto_compact_token_limit=5")).turn("Now add the index.", session)
    said = json.dumps(request, ensure_ascii=False).partition("### Said in this session before its context was compacted")[2]
    assert "We never use floats for prices. [codex:" in said.partition("###")[0] and "Now add the index." in said
