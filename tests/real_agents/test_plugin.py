"""Real agents install our plugin by their own commands: sessions are kept, the model may search, a pack is read at the start."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.capture import hook
from dreamkeep.session.reading.own_answers import is_our_tool
from tests.real_agents.agents import Agent, only_by_make

pytestmark = only_by_make

ROOT = Path(__file__).parent.parent.parent
LEARNED = "We never deploy on Fridays."
#: Codex runs no hook that nobody trusted; and nobody is there to be asked whether a tool may be called.
FREE = {
    "claude": ("--allowedTools=mcp__plugin_dreamkeep_dreamkeep__search",),
    "codex": ("--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"),
    "copilot": ("--allow-all-tools",),
    "gemini": ("--yolo",),
    "qwen": ("--yolo",),
}
INSTALL = {
    "claude": (("plugin", "marketplace", "add", str(ROOT)), ("plugin", "install", "dreamkeep@dreamkeep")),
    "codex": (("plugin", "marketplace", "add", str(ROOT)), ("plugin", "add", "dreamkeep@dreamkeep")),
    "copilot": (("plugin", "marketplace", "add", str(ROOT)), ("plugin", "install", "dreamkeep@dreamkeep")),
    "gemini": (("extensions", "install", str(ROOT / "plugins" / "gemini"), "--consent"),),
    "qwen": (("extensions", "install", str(ROOT / "plugins" / "dreamkeep"), "--consent"),),
}
#: With `-p` it fires no SessionStart; and it offers tools of others only when its model looks for them.
RETICENT = {"qwen"}


def programs(folder: Path) -> str:
    """As an installed package has them."""
    folder.mkdir()
    package = Path(hook.__file__).parent.parent.parent
    for name, words in {"dreamkeep": "-P -m dreamkeep", "dreamkeep-hook": f"-I -S '{hook.__file__}'"}.items():
        (folder / name).write_text(f"#!/bin/sh\nPYTHONPATH='{package}' exec '{sys.executable}' {words} \"$@\"\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("name", INSTALL)
def test_an_agent_that_installs_the_plugin_is_kept_may_search_and_reads_the_pack(
    name: str, agent_in: Callable[[str, str], Agent], tmp_path: Path
) -> None:
    agent = agent_in(name, "home")._replace(more=FREE[name], programs=programs(tmp_path / "programs"))
    agent.settings()
    for words in INSTALL[name]:
        agent.run(name, *words, GEMINI_CLI_TRUST_WORKSPACE="true")
    with Keep.open(agent.home / ".local" / "share" / "dreamkeep", environment={}) as keep:
        keep.note_add(LEARNED, kind="constraint")
        agent.stub.call = ("search", {"query": "when do we deploy"})
        request = json.dumps(agent.turn("May I deploy today?"))
        if name in RETICENT:
            assert "mcp__dreamkeep__search" in json.dumps(agent.stub.asked), "its last request is another one, of its own memory"
        else:
            assert is_our_tool(agent.stub.called), agent.stub.called
            assert LEARNED in request, "the agent passes our answer on to its model"
        keep.drain()
        [session] = [one for one in keep.sessions() if one.turns]
        assert session.agent == name
        shown = keep.show(session.id)
        assert [turn["prompt"] for turn in shown["turns"]] == ["May I deploy today?"]
        recalled = [one for one in shown["messages"] if one["role"] == "tool" and LEARNED in one["text"]]
        assert bool(recalled) == (name not in RETICENT) and all(one.get("mark") == "injected" for one in recalled)
        keep.render_packs()
        request = json.dumps(agent.turn("And tomorrow?"), ensure_ascii=False)
        assert (f"{LEARNED} [n-" in request) == (name not in RETICENT)
