"""Real agents in a home of their own, asking a stub for a model. Installed once, into DREAMKEEP_AGENTS (`make test-agents`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.real_agents.stub import Stub

CACHE = os.environ.get("DREAMKEEP_AGENTS", "")
NPM = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "copilot": "@github/copilot",
    "qwen": "@qwen-code/qwen-code",
}
AGENTS = ["claude", "codex", "gemini", "hermes"]

only_by_make = pytest.mark.skipif(not CACHE, reason="run it by `make test-agents`")


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
        words = [[sys.executable, "-m", "venv", str(place)], [str(command / "pip"), "install", "-q", "hermes-agent", "mcp"]]
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
    #: What its command is told besides.
    more: tuple[str, ...] = ()
    #: A folder of programs that it finds before all others.
    programs: str = "/usr/local/bin"

    def run(self, *words: str, **environment: str) -> str:
        """Nothing of the user's own: another home, no settings, no keys."""
        node = os.path.dirname(shutil.which("node") or "/usr/bin/node")
        done = subprocess.run(
            words,
            cwd=self.work,
            env={
                "PATH": f"{self.programs}:{installed(self.name)}:{node}:/usr/local/bin:/usr/bin:/bin",
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

    def settings(self) -> None:
        """Which model it asks; once, for others may have written there since."""
        name, text = {
            "claude": (".claude/settings.json", "{}\n"),
            "codex": (
                ".codex/config.toml",
                'model = "stub"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\n'
                f'base_url = "{self.stub.url}/v1"\nwire_api = "responses"\nenv_key = "STUB_KEY"\n'
                "requires_openai_auth = false\nrequest_max_retries = 0\nstream_max_retries = 0\n",
            ),
            "gemini": (
                ".gemini/settings.json",
                json.dumps(
                    {
                        "security": {"auth": {"selectedType": "gemini-api-key"}},
                        "model": {"name": "gemini-2.5-flash"},
                        "general": {"enableAutoUpdate": False},
                        "privacy": {"usageStatisticsEnabled": False},
                    }
                ),
            ),
            "copilot": (".copilot/settings.json", "{}\n"),
            "qwen": (
                ".qwen/settings.json",
                json.dumps({"security": {"auth": {"selectedType": "openai"}}, "model": {"name": "stub"}}),
            ),
            "hermes": (
                ".hermes/config.yaml",
                f"model:\n  default: stub\n  provider: custom\n  base_url: {self.stub.url}/v1\n  api_key: sk-dummy\n",
            ),
        }[self.name]
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text)

    # -- one turn; `resume`: of that session

    def claude(self, prompt: str, resume: str = "") -> list[Any]:
        words = ["claude", "-p", *self.more, *(["--resume", resume] if resume else []), prompt]
        self.run(*words, ANTHROPIC_BASE_URL=self.stub.url, ANTHROPIC_API_KEY="sk-dummy", DISABLE_AUTOUPDATER="1")
        return list(self.stub.last("/messages", "messages"))

    def codex(self, prompt: str, resume: str = "") -> list[Any]:
        self.settings()
        words = ["codex", "exec", "--skip-git-repo-check", *self.more, *(["resume", resume] if resume else []), prompt]
        self.run(*words, STUB_KEY="sk-dummy")
        return list(self.stub.last("/responses", "input"))

    def gemini(self, prompt: str, resume: str = "") -> list[Any]:
        self.settings()
        words = ["gemini", "--skip-trust", *self.more, *(["--resume", resume] if resume else []), "-p", prompt]
        self.run(*words, GEMINI_API_KEY="dummy", GOOGLE_GEMINI_BASE_URL=self.stub.url, GEMINI_CLI_TRUST_WORKSPACE="true")
        return list(self.stub.last("enerateContent", "contents"))

    def hermes(self, prompt: str, resume: str = "") -> list[Any]:
        self.settings()
        words = ["hermes", "chat", *self.more, *(["--resume", resume] if resume else []), "-q", prompt]
        self.run(*words, OPENAI_API_KEY="sk-dummy", OPENAI_BASE_URL=f"{self.stub.url}/v1")
        return list(self.stub.last("chat/completions", "messages"))

    def copilot(self, prompt: str, resume: str = "") -> list[Any]:
        words = ["copilot", *self.more, *([f"--resume={resume}"] if resume else []), "-p", prompt]
        provider = {"COPILOT_PROVIDER_BASE_URL": f"{self.stub.url}/v1", "COPILOT_PROVIDER_API_KEY": "sk-dummy"}
        self.run(*words, **provider, COPILOT_MODEL="stub", COPILOT_AUTO_UPDATE="false")
        return list(self.stub.last("chat/completions", "messages"))

    def qwen(self, prompt: str, resume: str = "") -> list[Any]:
        self.settings()
        words = ["qwen", "--auth-type", "openai", *self.more, *(["--resume", resume] if resume else []), "-p", prompt]
        self.run(*words, OPENAI_API_KEY="sk-dummy", OPENAI_BASE_URL=f"{self.stub.url}/v1", OPENAI_MODEL="stub")
        return list(self.stub.last("chat/completions", "messages"))

    def turn(self, prompt: str, resume: str = "") -> list[Any]:
        act: Callable[[str, str], list[Any]] = getattr(self, self.name)
        return act(prompt, resume)
