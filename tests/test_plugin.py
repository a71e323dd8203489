"""The plugin folder: one for Claude Code, Codex, Copilot CLI and Qwen Code, and one for Gemini CLI, in step with the package.

What real agents make of it: tests/real_agents/test_plugin.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import __version__
from dreamkeep.capture import hook
from dreamkeep.capture.hooks import spool
from dreamkeep.capture.setup.offer import setup_of
from dreamkeep.surfaces.mcp.tools import TOOLS
from tests.helpers.cli import Cli

ROOT = Path(__file__).parent.parent
PLUGIN, GEMINI = ROOT / "plugins" / "dreamkeep", ROOT / "plugins" / "gemini"
FILES = [one for folder in (ROOT / ".claude-plugin", PLUGIN, GEMINI) for one in sorted(folder.rglob("*")) if one.is_file()]


def told(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def commands(path: Path) -> dict[str, str]:
    return {event: group["hooks"][0]["command"] for event, [group] in told(path)["hooks"].items()}


def test_every_manifest_has_the_packages_version_and_name() -> None:
    market = told(ROOT / ".claude-plugin" / "marketplace.json")
    [entry] = market["plugins"]
    manifests = [
        {"name": market["name"], "version": market["metadata"]["version"]},
        entry,
        told(PLUGIN / ".claude-plugin" / "plugin.json"),
        told(PLUGIN / "qwen-extension.json"),
        told(GEMINI / "gemini-extension.json"),
    ]
    assert {(one["name"], one["version"]) for one in manifests} == {("dreamkeep", __version__)}
    assert (ROOT / entry["source"]).resolve() == PLUGIN


def test_the_server_is_the_same_for_all_and_is_found_by_its_name() -> None:
    places = [PLUGIN / ".mcp.json", PLUGIN / "qwen-extension.json", GEMINI / "gemini-extension.json"]
    assert [told(one)["mcpServers"] for one in places] == [{"dreamkeep": {"command": "dreamkeep", "args": ["mcp"]}}] * 3


def test_the_programs_that_the_plugin_calls_are_installed_with_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"dreamkeep", "dreamkeep-hook"}
    module, _, name = scripts["dreamkeep-hook"].partition(":")
    assert module == hook.__name__ and callable(getattr(hook, name))


def test_hooks_are_those_that_init_installs() -> None:
    """No timeout: what is seconds for one of them is milliseconds for another (Qwen Code up to 0.15)."""
    for path, agent, name in ((PLUGIN, "claude", "auto"), (GEMINI, "gemini", "gemini")):
        found = commands(path / "hooks" / "hooks.json")
        assert set(found) == set(setup_of(agent).EVENTS)
        assert all(f" dreamkeep-hook {name} {event};" in command for event, command in found.items())
    assert "timeout" not in (PLUGIN / "hooks" / "hooks.json").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda one: str(one.relative_to(ROOT)))
def test_nothing_in_it_names_a_place_on_some_machine(file: Path) -> None:
    assert not re.search(r"(?<![\w.>])/(?:home|Users|tmp|usr|opt|work)\b", file.read_text())


def test_words_for_the_model_name_tools_that_are_there() -> None:
    tools = {str(tool["name"]) for tool in TOOLS}
    texts = [one for one in FILES if one.suffix in (".md", ".toml") and one.name != "README.md"]
    assert len(texts) == 8
    named = {word for one in texts for word in re.findall(r"`([a-z]+(?:_[a-z]+)?)`", one.read_text())}
    known = {"dreamkeep", "superseded_by"} | {name for tool in TOOLS for name in tool["inputSchema"]["properties"]}
    assert named - known <= tools and {"search", "pack", "timeline", "why", "note_add", "insight_add"} <= named
    assert {"dream_next", "dream_submit"} <= named
    for one in GEMINI.glob("commands/*.toml"):
        same = (PLUGIN / "commands" / f"{one.stem}.md").read_text()
        assert tomllib.loads(one.read_text())["prompt"].strip().replace("{{args}}", "$ARGUMENTS") in same
    skills = [folder / "skills" / "earlier-sessions" / "SKILL.md" for folder in (PLUGIN, GEMINI)]
    assert skills[0].read_text() == skills[1].read_text() and skills[0].read_text().startswith("---\nname: earlier-sessions\n")


def test_the_skill_names_arguments_that_the_tool_has() -> None:
    arguments = {str(tool["name"]): set(tool["inputSchema"]["properties"]) for tool in TOOLS}
    text = (PLUGIN / "skills" / "earlier-sessions" / "SKILL.md").read_text()
    steps = [re.findall(r"`([a-z_]+)`", step) for step in re.findall(r"^\d\. (.*(?:\n   .*)*)", text, re.MULTILINE)]
    assert [words[0] for words in steps] == ["pack", "search", "timeline", "why"]
    assert all(set(words[1:]) <= arguments[words[0]] for words in steps) and sum(map(len, steps)) > 6


# -- the hooks, run as an agent's shell runs them


def run(command: str, folder: Path, **told: str) -> tuple[int, bytes]:
    """Its code and what it said. More goes into it than a pipe holds: it must be read, or this raises, as an agent would."""
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), **told}
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", command], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=environment) as hook:
        assert hook.stdin and hook.stdout
        hook.stdin.write(b'{"x":1}' * 100_000)
        hook.stdin.close()
        said = hook.stdout.read()
    return hook.returncode, said


@pytest.mark.parametrize("path", [PLUGIN, GEMINI], ids=lambda one: one.name)
def test_without_dreamkeep_a_hook_hears_the_agent_out_and_says_nothing(path: Path, tmp_path: Path) -> None:
    """A pipe that nobody reads, a word on stderr or a code other than 0 could disturb it."""
    for command in commands(path / "hooks" / "hooks.json").values():
        assert run(command, tmp_path) == (0, b"")
    assert list(tmp_path.iterdir()) == []


def test_with_dreamkeep_what_is_said_is_kept_under_the_agents_own_name(tmp_path: Path) -> None:
    program = tmp_path / "dreamkeep-hook"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S '{hook.__file__}' \"$@\"\n")
    program.chmod(0o755)
    keep = tmp_path / "keep"
    agents = {
        "claude": {"CLAUDE_PLUGIN_ROOT": "/p"},
        "codex": {"CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/p"},
        "copilot": {"CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/p", "COPILOT_PLUGIN_ROOT": "/p"},
        "qwen": {"QWEN_PROJECT_DIR": "/p"},
    }
    command = commands(PLUGIN / "hooks" / "hooks.json")["PostToolUse"]
    for environment in agents.values():
        assert run(command, tmp_path, DREAMKEEP_KEEP=str(keep), **environment) == (0, b"")
    command = commands(GEMINI / "hooks" / "hooks.json")["AfterTool"]
    assert run(command, tmp_path, DREAMKEEP_KEEP=str(keep)) == (0, b"")
    found = [spool.entry(name) for name in sorted(os.listdir(keep / "spool"))]
    assert [one.agent for one in found if one] == [*agents, "gemini"]


# -- beside `init`


@pytest.mark.parametrize(
    ("agent", "file", "text"),
    [
        ("claude", ".claude/settings.json", '{"enabledPlugins": {"dreamkeep@dreamkeep": true}}'),
        ("codex", ".codex/config.toml", '[plugins."dreamkeep@mine"]\nenabled = true\n'),
        ("gemini", ".gemini/extensions/dreamkeep/gemini-extension.json", "{}"),
        ("qwen", ".qwen/extensions/dreamkeep/qwen-extension.json", "{}"),
    ],
)
def test_init_leaves_an_agent_alone_that_has_the_plugin(agent: str, file: str, text: str, tmp_path: Path, cli: Cli) -> None:
    """Both would keep everything twice; doctor tells where it happened in the other order."""
    place = tmp_path / "home" / file
    home = ("--home", str(tmp_path / "home"))
    first = cli("init", *home, "--agent", agent, "--json").json["changes"]
    assert "install" in {one["action"] for one in first}
    place.parent.mkdir(parents=True, exist_ok=True)
    before = place.read_text() if place.exists() else ""
    if agent == "claude":
        place.write_text(json.dumps({**json.loads(before), **json.loads(text)}))
    else:
        place.write_text(before + text)
    environment = {"HOME": str(tmp_path / "home")}
    [twice] = [one for one in cli("doctor", "--json", environment=environment).json["checks"] if "recorded twice" in one["what"]]
    assert not twice["ok"] and f"--uninstall --agent {agent}" in twice["next"]
    assert cli("init", *home, "--agent", agent, "--uninstall").code == 0
    checks = cli("doctor", "--json", environment=environment).json["checks"]
    assert [one["ok"] for one in checks if one["what"] == f"{agent}: hooks come with the plugin"] == [True]
    needs = [one["ok"] for one in checks if "needs `dreamkeep-hook` on the PATH" in one["what"]]
    assert needs == ([] if shutil.which("dreamkeep-hook") else [False])
    [again] = cli("init", *home, "--agent", agent, "--json").json["changes"]
    assert again["action"] == "skipped" and "plugin" in again["reason"]


@pytest.mark.parametrize(
    "text", ["{", '{"enabledPlugins": ["dreamkeep@x"]}', '{"enabledPlugins": {"dreamkeep@x": false, "dreamkeeper@x": true}}']
)
def test_a_plugin_that_is_off_or_another_one_is_none(text: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(text)
    actions = {one["action"] for one in cli("init", "--home", str(tmp_path), "--json").json["changes"]}
    assert "skipped" not in actions
