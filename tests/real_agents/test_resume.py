"""R3: the agents' own resume takes what `restore` wrote, and the next request to the model holds the old turns.

`make test-agents` sets DREAMKEEP_AGENTS, a folder into which the agents are installed once (npm; Hermes from PyPI). Without it,
and where an agent can't be installed, these are skipped: they need a network, and minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dreamkeep import Keep
from dreamkeep.recovery import restore
from tests.real_agents.stub import ANSWER, Stub, running
from tests.test_agents import generator

CACHE = os.environ.get("DREAMKEEP_AGENTS", "")
NPM = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex", "gemini": "@google/gemini-cli"}
NEXT = "And what is NEXT?"

pytestmark = pytest.mark.skipif(not CACHE, reason="run it by `make test-agents`")


def installed(agent: str) -> str:
    """The folder with the agent's command in it."""
    command = Path(CACHE) / agent / ("bin" if agent == "hermes" else "node_modules/.bin")
    why_not = "" if (command / agent).exists() else install(agent, command)
    if why_not:
        pytest.skip(why_not)
    return str(command)


@cache  # without a network each try takes a minute
def install(agent: str, command: Path) -> str:
    """Why it can't be; "" when it is."""
    place = Path(CACHE) / agent
    if agent == "hermes":
        words = [[sys.executable, "-m", "venv", str(place)], [str(command / "pip"), "install", "-q", "hermes-agent"]]
    elif shutil.which("npm"):
        words = [["npm", "install", "--no-fund", "--no-audit", "--prefix", str(place), NPM[agent]]]
    else:
        return "npm is not installed"
    place.mkdir(parents=True, exist_ok=True)
    for one in words:
        done = subprocess.run(one, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200)
        if done.returncode:
            return f"{agent} can't be installed here: {' '.join((done.stderr or done.stdout).split())[:300]}"
    return "" if (command / agent).exists() else f"{agent} was installed, but has no command"


class Agent(NamedTuple):
    name: str
    home: Path
    work: Path
    stub: Stub

    def run(self, *words: str, **environment: str) -> str:
        """Nothing of the user's own: another home, no settings, no keys."""
        node = os.path.dirname(shutil.which("node") or "/usr/bin/node")
        done = subprocess.run(
            words,
            cwd=self.work,
            env={
                "PATH": f"{installed(self.name)}:{node}:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.home),
                "TERM": "xterm-256color",
                "LANG": "C.UTF-8",
                "SHELL": "/bin/sh",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    # -- one turn; `resume`: of that session

    def claude(self, prompt: str, resume: str = "") -> list[Any]:
        words = ["claude", "-p", *(["--resume", resume] if resume else []), prompt]
        self.run(*words, ANTHROPIC_BASE_URL=self.stub.url, ANTHROPIC_API_KEY="sk-dummy", DISABLE_AUTOUPDATER="1")
        return list(self.stub.last("/messages", "messages"))

    def codex(self, prompt: str, resume: str = "") -> list[Any]:
        settings = self.home / ".codex" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(
            'model = "stub"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\n'
            f'base_url = "{self.stub.url}/v1"\nwire_api = "responses"\nenv_key = "STUB_KEY"\n'
            "requires_openai_auth = false\nrequest_max_retries = 0\nstream_max_retries = 0\n"
        )
        words = ["codex", "exec", "--skip-git-repo-check", *(["resume", resume] if resume else []), prompt]
        self.run(*words, STUB_KEY="sk-dummy")
        return list(self.stub.last("/responses", "input"))

    def gemini(self, prompt: str, resume: str = "") -> list[Any]:
        settings = self.home / ".gemini" / "settings.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(
            json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "model": {"name": "gemini-2.5-flash"},
                    "general": {"enableAutoUpdate": False},
                    "privacy": {"usageStatisticsEnabled": False},
                }
            )
        )
        words = ["gemini", "--skip-trust", *(["--resume", resume] if resume else []), "-p", prompt]
        self.run(*words, GEMINI_API_KEY="dummy", GOOGLE_GEMINI_BASE_URL=self.stub.url, GEMINI_CLI_TRUST_WORKSPACE="true")
        return list(self.stub.last("enerateContent", "contents"))

    def hermes(self, prompt: str, resume: str = "") -> list[Any]:
        settings = self.home / ".hermes" / "config.yaml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f"model:\n  default: stub\n  provider: custom\n  base_url: {self.stub.url}/v1\n  api_key: sk-dummy\n")
        words = ["hermes", "chat", *(["--resume", resume] if resume else []), "-q", prompt]
        self.run(*words, OPENAI_API_KEY="sk-dummy", OPENAI_BASE_URL=f"{self.stub.url}/v1")
        return list(self.stub.last("chat/completions", "messages"))

    def turn(self, prompt: str, resume: str = "") -> list[Any]:
        act: Callable[[str, str], list[Any]] = getattr(self, self.name)
        return act(prompt, resume)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running() as found:
        yield found


@pytest.fixture
def agent_in(tmp_path: Path, stub: Stub) -> Callable[[str, str], Agent]:
    def make(name: str, home: str) -> Agent:
        work = tmp_path / "work"
        for folder in (work, tmp_path / home):
            folder.mkdir(exist_ok=True)
        return Agent(name, tmp_path / home, work, stub)

    return make


AGENTS = ["claude", "codex", "gemini", "hermes"]


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
    generator(origin).write(tmp_path / "theirs")
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
    assert sorted(restore._RESUMES) == sorted(AGENTS)
