"""`init` and `init --uninstall` add our entries to agents' settings and remove them, and change no other byte."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.agents.codex.setup import trust as codex_trust
from dreamkeep.agents.opencode import plugin
from dreamkeep.agents.opencode.setup import plugin_text
from dreamkeep.capture import setup
from dreamkeep.capture.setup import Change, examine, jsonedit, known_agents, yamledit
from dreamkeep.capture.setup.jsonedit import Syntax
from dreamkeep.capture.setup.offer import handler, setup_of
from dreamkeep.capture.setup.plan import Json
from dreamkeep.capture.setup.program import Program
from dreamkeep.capture.setup.text import UnreadableFile
from dreamkeep.errors import BadUsage
from dreamkeep.host import RealHost, make_folders, read_file
from tests.helpers.faults import LOSSES, FragileHost, PowerCut
from tests.helpers.json_texts import json_objects, json_text

AGENTS = known_agents()
HOOK = "/opt/dreamkeep/lib/dreamkeep/capture/hook.py"
PYTHON = "/opt/dreamkeep/bin/python"


class Home:
    """A user's home folder and what `init` does in it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "home"
        self.folder.mkdir()
        self.keep = str(folder / "keep")
        self.environment = environment or {}

    def write(self, name: str, data: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def init(self, *agents: str, host: RealHost | None = None, **more: Any) -> list[Change]:
        given: dict[str, Any] = {"keep": self.keep, "python": PYTHON, "hook": HOOK, **more}
        return setup.init(host or RealHost(), str(self.folder), self.environment, agents=agents, **given)

    def uninstall(self, *agents: str, **more: Any) -> list[Change]:
        return self.init(*agents, uninstall=True, **more)

    def tree(self) -> dict[str, bytes | None]:
        return {str(p.relative_to(self.folder)): p.read_bytes() if p.is_file() else None for p in self.folder.rglob("*")}

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text("utf-8-sig"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def actions(changes: list[Change]) -> dict[str, str]:
    return {os.path.basename(change.file): change.action for change in changes}


SETTINGS = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
}
THEIRS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo theirs", "timeout": 5}]}


# -- what is installed


def test_every_agent_gets_its_hooks_and_its_server_in_its_own_form(home: Home) -> None:
    changes = home.init(*AGENTS)
    assert {change.action for change in changes} == {"install"}
    for agent, name in SETTINGS.items():
        hooks = home.json(name)["hooks"]
        assert list(hooks) == list(setup_of(agent).EVENTS)
        for event, [group] in hooks.items():
            [handler] = group["hooks"]
            assert shlex.split(handler["command"]) == [PYTHON, "-I", "-S", HOOK, agent, event, home.keep, "||", ":"]
            assert "async" not in handler, "an async Stop hook never ran in Claude's print mode"
    assert home.json(".claude/settings.json")["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"] == 60
    assert home.json(".codex/hooks.json")["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"] == 3
    assert home.json(".gemini/settings.json")["hooks"]["AfterTool"][0]["hooks"][0]["timeout"] == 10_000
    assert list(home.json(".codex/hooks.json")) == ["hooks"], "Codex throws a file with any other key away"
    server = {"command": PYTHON, "args": ["-P", "-m", "dreamkeep", "mcp", "--keep", home.keep]}
    assert home.json(".claude.json")["mcpServers"] == {"dreamkeep": {"type": "stdio", **server}}
    assert home.json(".gemini/settings.json")["mcpServers"] == {"dreamkeep": server}
    assert tomllib.loads((home.folder / ".codex/config.toml").read_text()) == {"mcp_servers": {"dreamkeep": server}}
    local = home.json(".config/opencode/opencode.json")["mcp"]["dreamkeep"]
    assert local == {"type": "local", "command": [PYTHON, *server["args"]], "enabled": True}
    hermes = (home.folder / ".hermes/config.yaml").read_text()
    assert (
        f'  pre_llm_call:\n    - command: "{PYTHON} -I -S {HOOK} hermes pre_llm_call {home.keep} || :"\n      timeout: 10\n'
        in hermes
    )
    assert (home.folder / ".config/opencode/plugins/dreamkeep.js").read_text().startswith(plugin.SIGN)


def test_only_agents_that_are_found_are_set_up(home: Home) -> None:
    assert home.init() == []
    assert not os.path.exists(home.keep)
    home.write(".gemini/projects.json", "{}")
    home.write(".local/share/opencode/opencode.db", "")
    assert {change.agent for change in home.init()} == {"gemini", "opencode"}


def test_an_agent_that_cannot_be_set_up_is_bad_usage(home: Home) -> None:
    with pytest.raises(BadUsage, match="goose"):
        home.init("goose")


def test_the_environment_moves_the_settings(tmp_path: Path) -> None:
    moved = {
        "CLAUDE_CONFIG_DIR": f"{tmp_path}/c",
        "CODEX_HOME": f"{tmp_path}/x/",
        "HERMES_HOME": f"{tmp_path}/h",
        "XDG_CONFIG_HOME": f"{tmp_path}/cfg",
    }
    home = Home(tmp_path, moved)
    files = {change.file for change in home.init("claude", "codex", "hermes", "opencode")}
    assert files == {
        f"{tmp_path}/{name}"
        for name in (
            "c/settings.json",
            "c/.claude.json",
            "x/hooks.json",
            "x/config.toml",
            "h/config.yaml",
            "cfg/opencode/plugins/dreamkeep.js",
            "cfg/opencode/opencode.json",
        )
    }
    assert home.tree() == {}


def test_paths_with_spaces_and_quotes_reach_the_hook_as_they_are(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep, hook = '/a b/it\'s "mine" $HOME', "/x y/dreamkeep/capture/hook.py"
    home.init(*AGENTS, keep=f"{tmp_path}{keep}", hook=hook)
    command = home.json(".claude/settings.json")["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert shlex.split(command)[3:7] == [hook, "claude", "Stop", f"{tmp_path}{keep}"]
    assert {c.action for c in home.init(*AGENTS, keep=f"{tmp_path}{keep}", hook=hook)} == {"unchanged"}
    assert {c.action for c in home.uninstall(*AGENTS, keep=f"{tmp_path}{keep}", hook="/other")} == {"remove"}
    assert home.tree() == {}


def test_an_old_claude_is_not_given_an_event_for_which_it_would_drop_all_settings(home: Home) -> None:
    home.write(".claude.json", '{"lastReleaseNotesSeen": "2.1.75", "lastOnboardingVersion": "2.0.1"}')
    home.init("claude")
    assert "PostCompact" not in home.json(".claude/settings.json")["hooks"]
    home.write(".claude.json", '{"lastReleaseNotesSeen": "2.1.325"}')
    assert actions(home.init("claude"))["settings.json"] == "update"
    assert "PostCompact" in home.json(".claude/settings.json")["hooks"]


def test_the_server_can_be_left_out(home: Home) -> None:
    home.init(*AGENTS, mcp=False)
    for name, data in home.tree().items():
        assert b'"mcp"' not in (data or b"") and b"mcpServers" not in (data or b"") and b"mcp_servers" not in (data or b""), name
    home.init(*AGENTS)
    home.uninstall(*AGENTS, mcp=False)
    assert home.tree() == {}


def test_a_dry_run_writes_nothing_and_says_the_same(home: Home) -> None:
    home.write(".claude/settings.json", "{}")
    home.write(".codex/hooks.json", "[broken")
    before = home.tree()
    planned = home.init(dry_run=True)
    assert home.tree() == before and not os.path.exists(home.keep)
    assert [c._replace(backup="") for c in home.init()] == planned
    installed, kept = home.tree(), sorted(os.listdir(f"{home.keep}/state/init"))
    planned = home.uninstall(dry_run=True)
    assert home.tree() == installed and sorted(os.listdir(f"{home.keep}/state/init")) == kept
    assert home.uninstall() == planned
    assert home.tree() == before


# -- the bytes of others


SHAPES: dict[str, str | None] = {
    "no file": None,
    "empty file": "",
    "blank": "\n  \n",
    "empty object": "{}",
    "empty object, spread": "{\n}\n",
    "minified": '{"model":"opus","env":{"A":"1"},"list":[1,2]}',
    "one line": '{"model": "opus", "hooks": {"Stop": [' + json.dumps(THEIRS) + "]}}",
    "two spaces": json.dumps({"model": "opus", "hooks": {"Stop": [THEIRS], "Notification": [THEIRS]}}, indent=2) + "\n",
    "four spaces, no end": json.dumps({"env": {"B": "ü \U0001f600"}, "hooks": {"PostToolUse": [THEIRS, THEIRS]}}, indent=4),
    "tabs": json.dumps({"hooks": {"Stop": [THEIRS]}, "mcpServers": {"other": {"command": "x"}}}, indent="\t") + "\n\n",
    "windows": json.dumps({"a": [{"b": {}}], "hooks": {"Stop": []}}, indent=2).replace("\n", "\r\n") + "\r\n",
    "marked": "\ufeff" + json.dumps({"hooks": {}, "z": 1}, indent=2),
    "escapes": '{"a": "\\ud83d\\ude00 \\ud800 \\/", "n": 1E400, "d": {"k": 1, "k": 2}}\n',
    "odd spaces": '{ "hooks" :{ "SessionStart":[ ] , "X" : [1 ,2] } ,\n\n"q":null }',
    "old gemini": '{"hooks": {"enabled": true, "disabled": ["x"]}, "hooksConfig": {"enabled": true}}',
}
COMMENTED: dict[str, str] = {
    "comments": """// top
{
  // the model
  "model": "opus", /* why */
  "hooks": { // all
    "Stop": [ /* none */ ]
  } // end
}
// bye""",
    "comment at the end": '{\n\t"a": 1 // one\n\t// two\n}\n',
    "windows comments": '{\r\n  "a": 1 // one\r\n}\r\n',
}


@pytest.mark.parametrize("agent", list(SETTINGS))
@pytest.mark.parametrize("shape", [*SHAPES, *COMMENTED])
def test_uninstall_restores_every_byte(home: Home, agent: str, shape: str) -> None:
    """W2: and installing twice changes nothing more."""
    text = {**SHAPES, **COMMENTED}[shape]
    if agent == "codex" and shape in COMMENTED:
        pytest.skip("Codex itself reads strict JSON only")
    if text is not None:
        home.write(SETTINGS[agent], text)
    (home.folder / SETTINGS[agent]).parent.mkdir(exist_ok=True)
    before = home.tree()
    [first, *_] = home.init(agent)
    assert first.action == "install"
    installed = home.tree()
    assert {c.action for c in home.init(agent)} == {"unchanged"}
    assert home.tree() == installed
    assert {c.action for c in home.uninstall(agent)} == {"remove"}
    assert home.tree() == before
    assert {c.action for c in home.uninstall(agent)} <= {"unchanged"}
    assert home.tree() == before


@pytest.mark.parametrize(
    "shape",
    [s for s in (*SHAPES, *COMMENTED) if s not in ("empty file", "blank", "empty object, spread", "odd spaces", "comments")],
)
def test_uninstall_without_its_history_restores_every_byte_but_empty_containers(home: Home, shape: str) -> None:
    """The keep is gone: our entries are recognised in the text itself."""
    text = {**SHAPES, **COMMENTED}[shape]
    if text is not None:
        home.write(".gemini/settings.json", text)
    home.init("gemini")
    shutil.rmtree(home.keep)
    home.uninstall("gemini")
    found = (home.folder / ".gemini/settings.json").read_bytes().decode()
    hollow = {
        "no file": "{}\n",
        "windows": text and text.replace(',\r\n  "hooks": {\r\n    "Stop": []\r\n  }', ""),
        "marked": "x",
    }
    if shape == "marked":
        assert json.loads(found.removeprefix("\ufeff")) == {"z": 1}
    elif shape == "windows":
        assert json.loads(found) == json.loads(text or "")
    else:
        assert found == hollow.get(shape, text)


OPENCODE = """{
  // mine
  "$schema": "https://opencode.ai/config.json",
  "plugin": ["a",],
  "mcp": {
    "x": {"type": "remote", "url": "u",}, // x
  },
}
"""
TOML = '''# mine
model = "o" # why

[mcp_servers.other]
command = """
[mcp_servers.dreamkeep]
"""
args = [
  "a", # ]
]

[projects."/x y"]
trust_level = "trusted"
'''
YAML = """# mine
model:
  default: o   # why
toolsets:
- a
- b
hooks:
  pre_llm_call:
  - command: theirs
    timeout: 5
  # between
  pre_tool_call:
    - matcher: x
      command: >-
        a
        b

mcp_servers:
  other:
    command: y
# end
"""
OTHERS = {
    ("opencode", ".config/opencode/opencode.jsonc"): OPENCODE,
    ("opencode", ".config/opencode/opencode.json"): '{"mcp":{}}',
    ("codex", ".codex/config.toml"): TOML,
    ("hermes", ".hermes/config.yaml"): YAML,
}
VARIANTS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "windows": lambda text: text.replace("\n", "\r\n"),
    "no last line end": lambda text: text.rstrip("\n"),
    "more line ends": lambda text: text + "\n\n",
    "marked": lambda text: "\ufeff" + text,
    "empty": lambda text: "",
}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize(("agent", "name"), list(OTHERS), ids=lambda v: v)
@pytest.mark.parametrize("memory", [True, False], ids=["remembered", "forgotten"])
def test_jsonc_toml_and_yaml_come_back_byte_for_byte(home: Home, agent: str, name: str, variant: str, memory: bool) -> None:
    text = VARIANTS[variant](OTHERS[agent, name])
    path = home.write(name, text)
    before = home.tree()
    changes = home.init(agent)
    assert {c.action for c in changes} == {"install"}, changes
    installed = home.tree()
    for line in text.strip("\ufeff\r\n").splitlines() if name != ".config/opencode/opencode.json" else ():
        assert line.rstrip(",") in path.read_bytes().decode(), line
    assert {c.action for c in home.init(agent)} == {"unchanged"}
    assert home.tree() == installed
    if not memory:
        shutil.rmtree(home.keep)
    assert {c.action for c in home.uninstall(agent)} == {"remove"}
    if memory:
        assert home.tree() == before
    elif '{"mcp":{}}' not in text and variant != "empty":  # whether an empty thing was there before us nobody knows any more
        assert path.read_bytes().decode() == text


@pytest.mark.parametrize(
    "text",
    [
        "hooks: {}\nhooks_auto_accept: false\nmcp_servers: {} # none\n",
        "hooks:\nmodel: x\n",
        "---\nhooks: null\n",
        "hooks:\n    pre_llm_call: []\n    other:\n        - command: x\n",
        "a: |\n  hooks:\n  # no comment\n\nhooks:\n  pre_llm_call:\n    - command: |\n        x\n        # y\n",
        "'hooks':\n  x:\n  - {command: a}\nz: [1,\n  2]\ny: \"a\n  b: c\"\n",
    ],
)
def test_empty_hooks_in_yaml_are_filled_and_emptied_again(home: Home, text: str) -> None:
    path = home.write(".hermes/config.yaml", text)
    [change] = home.init("hermes")
    assert change.action == "install" and "Hermes asks once" in change.reason, change
    lines = path.read_text().splitlines()
    assert sum(line.lstrip().startswith("hooks:") or line.startswith("'hooks':") for line in lines) <= 2
    assert home.init("hermes")[0].action == "unchanged"
    home.write(".hermes/config.yaml", path.read_text() + "later: 1\n")
    home.uninstall("hermes")
    assert "hook.py" not in path.read_text() and "later: 1" in path.read_text()
    left = [line for line in text.splitlines() if line.strip() not in ("hooks:", "hooks: null")]
    assert [line for line in path.read_text().splitlines() if line.strip() not in ("hooks:", "hooks: {}", "later: 1")] == [
        line for line in left if line.strip() != "hooks: {}"
    ]


@pytest.mark.parametrize("wide", [80, 10_000])
def test_our_entries_are_found_in_a_yaml_file_that_its_agent_has_rewritten(home: Home, wide: int) -> None:
    """Hermes loads and dumps its settings: that removes comments, indents lists less, and folds long lines."""
    home.init("hermes")
    path = home.folder / ".hermes/config.yaml"
    command = f"{PYTHON} -I -S {HOOK} hermes"
    fold = "\n      " if wide == 80 else " "
    dumped = "hooks:\n" + "".join(
        f"  {event}:\n  - command: '{command} {event}{fold}{home.keep} || :'\n    timeout: 10\n"
        for event in setup_of("hermes").EVENTS
    )
    dumped += "mcp_servers:\n  dreamkeep:\n    args:\n    - -P\n    - -m\n    - dreamkeep\n    - mcp\n    - --keep\n"
    dumped += f"    - {home.keep}\n    command: {PYTHON}\n"
    path.write_text(dumped)
    assert home.init("hermes")[0].action == "unchanged"
    assert home.init("hermes", python="/new/python")[0].action == "update"
    assert path.read_text().count("/new/python") == len(setup_of("hermes").EVENTS) + 1 and PYTHON not in path.read_text()
    home.uninstall("hermes")
    assert not path.exists()


@pytest.mark.parametrize(
    ("agent", "name", "text"),
    [
        ("claude", ".claude/settings.json", '{"hooks": '),
        ("claude", ".claude/settings.json", '{"a": 1,}'),
        ("claude", ".claude/settings.json", "[]"),
        ("claude", ".claude/settings.json", '{"hooks": []}'),
        ("claude", ".claude/settings.json", '{"hooks": {"Stop": {}}}'),
        ("claude", ".claude/settings.json", '{"hooks": {"Stop": [{"hooks": 1}]}}'),
        ("claude", ".claude/settings.json", '{"hooks": {}, "hooks": {}}'),
        ("claude", ".claude/settings.json", b'{"a": "\xff"}'),
        ("claude", ".claude/settings.json", '{"a": 1}'.encode("utf-16")),
        ("claude", ".claude/settings.json", b"{}\0"),
        ("claude", ".claude.json", '{"mcpServers": []}'),
        ("claude", ".claude.json", '{"a" 1}'),
        ("codex", ".codex/hooks.json", '{"hooks": {}} // no comments here'),
        ("codex", ".codex/config.toml", "a = = 1"),
        ("codex", ".codex/config.toml", 'mcp_servers = {other = {command = "x"}}'),
        ("codex", ".codex/config.toml", "mcp_servers = 1"),
        ("gemini", ".gemini/settings.json", '"text"'),
        ("qwen", ".qwen/settings.json", '{"mcpServers": 1}'),
        ("opencode", ".config/opencode/opencode.json", "{"),
        ("opencode", ".config/opencode/plugins/dreamkeep.js", "export default 1"),
        ("hermes", ".hermes/config.yaml", "hooks: {pre_llm_call: [{command: x}]}"),
        ("hermes", ".hermes/config.yaml", "hooks: &a\n  x:\n  - command: y\n"),
        ("hermes", ".hermes/config.yaml", "hooks:\n\tx: 1\n"),
        ("hermes", ".hermes/config.yaml", "a: 1\n---\nb: 2\n"),
        ("hermes", ".hermes/config.yaml", "hooks:\n  pre_llm_call: *x\n"),
        ("hermes", ".hermes/config.yaml", "hooks: {}\nhooks: {}\n"),
        ("hermes", ".hermes/config.yaml", 'a: "x\nhooks: y"\n'),
        ("hermes", ".hermes/config.yaml", "{}"),
        ("hermes", ".hermes/config.yaml", "- a\n- b\n"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_refused_and_unchanged(home: Home, agent: str, name: str, text: str | bytes) -> None:
    """D31: and the other agents are set up."""
    path = home.write(name, text)
    seen = path.stat()
    home.write(".gemini/x", "")
    home.write(".qwen/x", "")
    changes = {c.file: c for c in home.init()}
    refused = changes.pop(str(path))
    assert refused.action == "refused" and "not changed" in refused.problem
    assert ("by hand" in refused.reason) == name.endswith(("toml", "yaml"))
    assert path.read_bytes() == (text if isinstance(text, bytes) else text.encode())
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (seen.st_mtime_ns, seen.st_ino)
    assert len(changes) >= 1 and {c.action for c in changes.values()} == {"install"}
    for change in home.uninstall():
        assert change.action in ("remove", "unchanged", "refused")
    assert path.read_bytes() == (text if isinstance(text, bytes) else text.encode())


def test_a_server_of_our_name_that_is_not_ours_is_left_alone(home: Home) -> None:
    home.write(".claude.json", '{"mcpServers": {"dreamkeep": {"command": "uvx", "args": ["dreamkeep-fork"]}}}')
    home.write(".codex/config.toml", '[mcp_servers.dreamkeep]\nurl = "http://x"\n')
    home.write(".hermes/config.yaml", "mcp_servers:\n  dreamkeep:\n    url: http://x\n")
    before = home.tree()
    changes = {os.path.basename(c.file): c for c in home.init()}
    assert changes[".claude.json"].action == changes["config.toml"].action == "skipped"
    assert "not dreamkeep's" in changes["config.yaml"].reason and "not dreamkeep's" in changes["config.toml"].reason
    home.uninstall()
    assert home.tree() == before


def test_comments_that_claude_does_not_accept_are_kept_and_reported(home: Home) -> None:
    home.write(".claude/settings.json", COMMENTED["comments"])
    [change, _] = home.init("claude")
    assert change.action == "install" and "comments" in change.reason
    assert "// the model" in (home.folder / ".claude/settings.json").read_text()


commands = st.sampled_from(["echo a", "it's", "python /x/hook.py", "dreamkeep hook claude Stop"])
groups = st.lists(
    st.fixed_dictionaries(
        {"hooks": st.lists(st.fixed_dictionaries({"type": st.just("command"), "command": commands}), min_size=1, max_size=2)},
        optional={"matcher": st.text(max_size=3)},
    ),
    min_size=1,
    max_size=2,
)
hook_tables = st.dictionaries(st.sampled_from(["Stop", "SessionStart", "AfterTool", "Other"]), groups, min_size=1, max_size=3)


@given(json_objects, st.none() | hook_tables, groups, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_in_any_settings_only_our_entries_are_added_and_removed(
    value: dict[str, Any], hooks: Any, late: list[Any], chance: random.Random
) -> None:
    """A hook that somebody adds meanwhile, before or behind ours, stays as it was written."""
    program = Program(PYTHON, HOOK, "/k")
    handlers = {event: handler("gemini", event, program, 10000) for event in setup_of("gemini").EVENTS}
    syntax = Syntax(comments=True)
    edit = Json("gemini", HOOK, syntax, handlers, "mcpServers", program.server_entry())
    before = {**value, **({"hooks": hooks} if hooks else {})}
    text = json_text(before, chance, comments=False, unit=chance.choice(["  ", "\t"]), eol=chance.choice(["\n", "\r\n"]))
    installed = edit.install(text.encode())
    assert edit.install(installed.data).data == installed.data
    assert edit.commands(installed.data).keys() == handlers.keys()
    back = edit.remove(installed.data, installed.made).data.decode()
    assert back == text if before else json.loads(back) == {}
    grown = installed.data.decode()
    event = chance.choice(["AfterTool", "Stop", "New"])
    for group in late:
        grown = jsonedit.append(grown, ("hooks", event), group, syntax)
    left = json.loads(edit.remove(grown.encode(), installed.made).data)
    assert left == {**before, "hooks": {**(hooks or {}), event: [*(hooks or {}).get(event, []), *late]}}


# -- others write to the same file


@pytest.mark.parametrize("agent", list(SETTINGS))
def test_hooks_that_others_added_meanwhile_stay_unchanged(home: Home, agent: str) -> None:
    text = json.dumps({"model": "o", "hooks": {"SessionStart": [THEIRS]}}, indent=2)
    path = home.write(SETTINGS[agent], text)
    home.init(agent)
    late = json.dumps({"hooks": [{"type": "command", "command": "echo late"}]})
    theirs = path.read_text().replace('"hooks": {', f'"hooks": {{\n    "Added": [{late}],', 1)
    event = setup_of(agent).EVENTS[1]
    value = json.loads(theirs)
    value["hooks"][event].append(THEIRS)
    value["hooks"][event][0]["hooks"].insert(0, {"type": "command", "command": "in our group"})
    value["own"] = [1, {"x": "ü"}]
    path.write_text(json.dumps(value, indent=3, ensure_ascii=False))
    [change] = [change for change in home.uninstall(agent) if change.file == str(path)]
    assert change.action == "remove" and change.backup
    left = json.loads(path.read_text())
    assert left == {
        "model": "o",
        "hooks": {
            "Added": [json.loads(late)],
            "SessionStart": [THEIRS],
            event: [{"hooks": [{"type": "command", "command": "in our group"}]}, THEIRS],
        },
        "own": [1, {"x": "ü"}],
    }
    assert Path(change.backup).read_bytes() == json.dumps(value, indent=3, ensure_ascii=False).encode()
    assert os.stat(change.backup).st_mode & 0o777 == 0o600


def test_the_text_around_our_entries_is_not_reformatted(home: Home) -> None:
    path = home.write(".gemini/settings.json", '{ "a":1,\n "hooks" : {"AfterTool": [ {"hooks":[]} ] // x\n} }')
    home.init("gemini")
    grown = path.read_text().replace('"a":1,', '"a":1, "b"  : [ 2 ],')
    path.write_text(grown)
    home.uninstall("gemini")
    assert path.read_text() == '{ "a":1, "b"  : [ 2 ],\n "hooks" : {"AfterTool": [ {"hooks":[]} ] // x\n} }'


def test_containers_that_existed_before_the_install_stay_and_ours_are_removed(home: Home) -> None:
    path = home.write(".claude/settings.json", '{"hooks": {"Stop": []}}')
    home.init("claude")
    path.write_text(path.read_text().replace('"hooks": {', '"k": 1, "hooks": {', 1))
    home.uninstall("claude")
    assert path.read_text() == '{"k": 1, "hooks": {"Stop": []}}'


def test_toml_tables_that_were_added_behind_ours_stay_in_place(home: Home) -> None:
    path = home.write(".codex/config.toml", 'model = "o"\n')
    home.init("codex")
    path.write_text(path.read_text() + '\n# trusted\n[hooks.state."x:stop:0:0"]\ntrusted_hash = "sha256:0"\n')
    text = path.read_text().replace("[mcp_servers.dreamkeep]\n", "[mcp_servers.dreamkeep]\nstartup_timeout_sec = 3\n")
    path.write_text(text + '\n[mcp_servers.dreamkeep.env]\nA = "b"\n')
    assert actions(home.init("codex", keep=home.keep, python="/other/python"))["config.toml"] == "update"
    table = tomllib.loads(path.read_text())["mcp_servers"]["dreamkeep"]
    assert table["command"] == "/other/python" and table["startup_timeout_sec"] == 3 and table["env"] == {"A": "b"}
    home.uninstall("codex")
    assert path.read_text() == 'model = "o"\n\n# trusted\n[hooks.state."x:stop:0:0"]\ntrusted_hash = "sha256:0"\n'


def test_entries_of_an_older_install_are_updated_in_place_and_never_doubled(home: Home) -> None:
    """Hooks for events that we no longer want and doubled hooks are removed; the user's entries beside them stay."""
    old = "/old/lib/dreamkeep/capture/hook.py"
    mine = {"type": "command", "command": f"/old/python {old} claude Stop", "timeout": 1, "statusMessage": "…"}
    gone = {"type": "command", "command": f"/old/python {old} claude PreToolUse"}
    near = {"type": "command", "command": "/home/u/dreamkeep/my_hook.py"}
    text = {"hooks": {"PreToolUse": [{"hooks": [gone]}], "Stop": [THEIRS, {"hooks": [mine, near]}, {"hooks": [mine]}]}}
    path = home.write(".claude/settings.json", json.dumps(text, indent=2))
    assert actions(home.init("claude"))["settings.json"] == "update"
    hooks = json.loads(path.read_text())["hooks"]
    now = {**mine, "command": f"{PYTHON} -I -S {HOOK} claude Stop {home.keep} || :", "timeout": 10}
    assert hooks["Stop"] == [THEIRS, {"hooks": [now, near]}]
    assert "PreToolUse" not in hooks
    home.uninstall("claude")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [THEIRS, {"hooks": [near]}]}}


def test_another_keep_or_python_is_an_update_and_uninstall_is_still_exact(home: Home, tmp_path: Path) -> None:
    for name in SETTINGS.values():
        home.write(name, SHAPES["two spaces"] or "")
    for (_, name), text in OTHERS.items():
        home.write(name, text)
    before = home.tree()
    home.init()
    for n in range(3):
        assert {c.action for c in home.init(python=f"/python{n}")} == {"update"}
    assert {c.action for c in home.uninstall()} == {"remove"}
    assert home.tree() == before


def test_a_linked_file_is_written_at_its_real_path_with_its_mode(home: Home) -> None:
    """Dotfiles are often links into a repository; such a link must not become a file."""
    real = home.write("dotfiles/claude.json", '{\r\n  "a": 1\r\n}')
    real.chmod(0o644)
    link = home.folder / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to("../dotfiles/claude.json")
    home.init("claude", mcp=False)
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o644
    assert "hook.py" in real.read_text() and real.stat().st_nlink == 1
    assert sorted(os.listdir(real.parent)) == ["claude.json"]
    home.uninstall("claude")
    assert link.is_symlink() and real.read_bytes() == b'{\r\n  "a": 1\r\n}' and real.stat().st_mode & 0o777 == 0o644


def test_a_link_to_a_missing_file_stays_a_link(home: Home) -> None:
    home.write("dotfiles/x", "")
    link = home.folder / ".gemini" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(home.folder / "dotfiles" / "g.json")
    home.init("gemini")
    assert link.is_symlink() and "hook.py" in link.read_text()
    home.uninstall("gemini")
    assert link.is_symlink() and not link.exists()


def test_two_agents_that_share_a_file_by_a_link_keep_their_own_hooks(home: Home) -> None:
    path = home.write(".gemini/settings.json", '{"a": 1}')
    (home.folder / ".qwen").mkdir()
    (home.folder / ".qwen/settings.json").symlink_to(path)
    home.init()
    hooks = json.loads(path.read_text())["hooks"]
    assert len(hooks["SessionStart"]) == 2 and "AfterTool" in hooks and "PostToolUse" in hooks
    assert {c.action for c in home.init()} == {"unchanged"}
    home.uninstall()
    assert path.read_text() == '{"a": 1}'


def test_new_files_and_backups_are_private_and_a_read_only_file_is_respected(home: Home) -> None:
    path = home.write(".claude/settings.json", "{}")
    path.chmod(0o444)
    changes = {os.path.basename(c.file): c for c in home.init("claude", "codex")}
    assert changes["settings.json"].action == "refused" and "read-only" in changes["settings.json"].problem
    assert path.read_text() == "{}"
    for name in (".claude.json", ".codex/hooks.json", ".codex/config.toml"):
        assert (home.folder / name).stat().st_mode & 0o777 == 0o600
    for file in Path(home.keep).rglob("*"):
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_backup_is_made_once_for_each_state_and_never_overwritten(home: Home) -> None:
    """W3: a richer copy is never overwritten by a poorer one."""
    path = home.write(".claude/settings.json", '{"rich": "er"}')
    backups = set()
    for text in ('{"rich": "er"}', "{}", '{"rich": "er"}'):
        path.write_text(text)
        [change, *_] = home.init("claude")
        backups.add(change.backup)
        assert Path(change.backup).read_text() == text
        home.uninstall("claude")
        assert path.read_text() == text
    assert len(backups) == 2


def test_a_write_between_our_read_and_our_write_is_not_lost(home: Home) -> None:
    path = home.write(".claude/settings.json", '{"a": 1}')

    class Hasty(RealHost):
        times = 0

        def copy_mode(self, path_: str, like: str) -> None:
            super().copy_mode(path_, like)
            if self.times < 3:
                self.times += 1
                path.write_text(json.dumps({"a": self.times + 1}))

    [change] = home.init("claude", host=Hasty(), mcp=False)
    assert change.action == "install"
    assert json.loads(path.read_text())["a"] == 4
    assert os.listdir(path.parent) == ["settings.json"]
    home.uninstall("claude")
    assert path.read_text() == '{"a": 4}'

    class Restless(RealHost):
        times = 0

        def copy_mode(self, path_: str, like: str) -> None:
            self.times += 1
            path.write_text(json.dumps({"b": self.times}))

    [change] = home.init("claude", host=Restless(), mcp=False)
    assert change.action == "failed" and "keeps changing" in change.problem
    assert json.loads(path.read_text()) == {"b": 5}
    assert os.listdir(path.parent) == ["settings.json"]


def test_our_entries_are_merged_into_a_file_that_appears_while_we_create_it(home: Home) -> None:
    """W11: create or fail."""

    class Late(RealHost):
        def link(self, old: str, new: str) -> None:
            if new.endswith("hooks.json") and not os.path.exists(new):
                Path(new).write_text(json.dumps({"hooks": {"Stop": [THEIRS]}}))
            super().link(old, new)

    (home.folder / ".codex").mkdir()
    home.init("codex", host=Late(), mcp=False)
    assert home.json(".codex/hooks.json")["hooks"]["Stop"][0] == THEIRS
    home.uninstall("codex")
    assert home.json(".codex/hooks.json") == {"hooks": {"Stop": [THEIRS]}}


def test_many_inits_at_once_end_in_one_install(home: Home) -> None:
    for agent in AGENTS:
        (home.folder / f".{agent}").mkdir()
    home.write(".claude/settings.json", SHAPES["two spaces"] or "")
    before = home.tree()
    threads = [threading.Thread(target=home.init, args=AGENTS) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {c.action for c in home.init(*AGENTS)} == {"unchanged"}
    home.uninstall(*AGENTS)
    assert home.tree() == before


# -- power cuts and failing disks


FILES = {
    "/h/.claude/settings.json": json.dumps({"model": "o", "hooks": {"Stop": [THEIRS]}}, indent=2).encode(),
    "/h/.codex/config.toml": TOML.encode(),
    "/h/.hermes/config.yaml": YAML.encode(),
}
#: A file that is there and one that is not; and, in `make test-all`, every way of editing.
SETS = [("claude",), pytest.param(("claude", "codex", "hermes"), marks=pytest.mark.slow)]


def prepared(host: FragileHost) -> FragileHost:
    for path, data in FILES.items():
        make_folders(host, os.path.dirname(path))
        handle = host.create(path)
        host.write(handle, data)
        host.sync(handle)
        host.close(handle)
        host.sync_folder(os.path.dirname(path))
    return host


def run(host: FragileHost, agents: Sequence[str], *, python: str = PYTHON, uninstall: bool = False) -> list[Change]:
    return setup.init(host, "/h", {}, agents=agents, keep="/k", python=python, hook=HOOK, uninstall=uninstall)


def shown(host: FragileHost) -> dict[str, bytes]:
    names = (*FILES, "/h/.claude.json", "/h/.codex/hooks.json")
    return {name: read_file(host, name) for name in names if host.stat(name)}


def rebooted(host: FragileHost, loss: str, seed: int) -> FragileHost:
    after = FragileHost(seed=seed + 1)
    after.root = host.reboot(loss, seed).root
    return after


@pytest.mark.parametrize("agents", SETS, ids=len)
def test_power_cut_at_every_step_leaves_the_old_file_or_the_new_one(agents: Sequence[str]) -> None:
    """W12 W15 W16: and afterwards installing and uninstalling work exactly."""
    whole = prepared(FragileHost())
    run(whole, agents)
    new = shown(whole)
    for n in count(1):
        host = prepared(FragileHost(seed=n))
        host.plan(n, "cut")
        try:
            run(host, agents)
            run(host, agents, uninstall=True)
        except PowerCut:
            pass
        else:
            break
        for loss in LOSSES if len(agents) > 1 else (LOSSES[n % 6], LOSSES[(n + 3) % 6]):
            after = rebooted(host, loss, n)
            for name, data in shown(after).items():
                assert data in (FILES.get(name), new[name]), (n, loss, name)
            assert {name for name in FILES if after.stat(name) is None} == set(), (n, loss)
            run(after, agents)
            assert shown(after) == new, (n, loss)
            run(after, agents, uninstall=True)
            assert shown(after) == FILES, (n, loss)
            for folder in ("/h", "/h/.claude", "/h/.codex", "/h/.hermes"):
                assert not [name for name in after.names(folder) if "tmp" in name], (n, loss)
    assert n > 40


@pytest.mark.parametrize("agents", SETS, ids=len)
def test_uninstall_still_restores_the_original_after_a_power_cut_during_an_update(agents: Sequence[str]) -> None:
    """W15: the history of the original survives the write of the next version."""
    for n in count(1):
        host = prepared(FragileHost(seed=n))
        run(host, agents)
        host.plan(n, "cut")
        try:
            run(host, agents, python="/new")
        except PowerCut:
            pass
        else:
            break
        for loss in LOSSES:
            after = rebooted(host, loss, n)
            run(after, agents, uninstall=True)
            assert shown(after) == FILES, (n, loss)
    assert n > 15


@pytest.mark.parametrize("agents", SETS, ids=len)
@pytest.mark.parametrize("how", ["fail", "tear", "bad_sync"])
def test_a_failing_operation_affects_one_file_and_leaves_nothing_half_done(how: str, agents: Sequence[str]) -> None:
    """W15 W8: the failure is reported, the other files are installed, and another try finishes the work."""
    failed = 0
    for n in count(1):
        host = prepared(FragileHost(seed=n))
        make_folders(host, "/k/state/init")
        host.plan(n, how, errno.ENOSPC)
        try:
            changes = run(host, agents)
        except OSError:
            changes = []  # the lock's own file
        if host.calls < n:
            break
        bad = [c for c in changes if c.action == "failed"]
        failed += len(bad)
        assert len(bad) <= 1 and all(c.problem for c in bad)
        assert host.open_handles == 0
        again = run(host, agents)
        assert {c.action for c in again} <= {"install", "unchanged"}, (n, again)
        run(host, agents, uninstall=True)
        assert shown(host) == FILES, n
    assert n > 20 and failed > 4


# -- doctor


def checks(home: Home, **more: Any) -> list[tuple[str, bool]]:
    found = examine(RealHost(), str(home.folder), home.environment, **more)
    assert all(set(check) == {"check", "ok", "what", "next"} for check in found)
    assert all(check["next"] for check in found if not check["ok"])
    return [(check["what"], check["ok"]) for check in found]


def test_doctor_reports_everything_that_stops_hooks_from_working(home: Home, tmp_path: Path) -> None:
    for name in (*SETTINGS.values(), ".config/opencode/opencode.json"):
        home.write(name, "{}")
    home.write(".hermes/config.yaml", "")
    assert len(checks(home)) == 6 and all(ok for _, ok in checks(home))
    hook = tmp_path / "dreamkeep/capture/hook.py"
    hook.parent.mkdir(parents=True)
    hook.write_text("")
    home.init(python=sys.executable, hook=str(hook))
    good = checks(home, hook=str(hook), keep=home.keep)
    assert [what for what, ok in good if not ok] == ["codex: its hooks are not trusted yet, so it skips them silently"]
    assert [what.partition(" in ")[0] for what, ok in good if ok] == [
        "claude: 8 hooks",
        "codex: 7 hooks",
        "gemini: 5 hooks",
        "qwen: 8 hooks",
        "opencode: 8 hooks",
        "hermes: 6 hooks",
    ]
    assert sum("another keep" in what for what, _ in checks(home, keep="/elsewhere")) == 6
    hook.unlink()
    assert sum("no longer exists" in what for what, ok in checks(home) if not ok) == 6
    home.init(python=str(tmp_path / "gone" / "python"), hook=str(hook))
    told = [what for what, ok in checks(home) if not ok and "its MCP server starts" in what]
    assert [what.partition(":")[0] for what in told] == ["claude", "codex", "gemini", "qwen", "opencode"]
    value = home.json(".claude/settings.json")
    del value["hooks"]["Stop"]
    home.write(".claude/settings.json", json.dumps({**value, "disableAllHooks": True, "cleanupPeriodDays": 0}))
    home.write(".gemini/settings.json", json.dumps({**home.json(".gemini/settings.json"), "hooksConfig": {"enabled": False}}))
    home.write(".qwen/settings.json", "{broken")
    bad = "\n".join(what for what, ok in checks(home) if not ok)
    assert "claude: hooks are missing for Stop" in bad
    assert "claude: `disableAllHooks`" in bad and "claude: writes no sessions at all" in bad
    assert "gemini: `hooksConfig.enabled`" in bad and "qwen: its settings can't be read" in bad


def test_codex_hooks_are_trusted_only_when_every_one_of_ours_is(home: Home) -> None:
    home.init("codex")
    path = str(home.folder / ".codex/hooks.json")
    hooks = Path(path).read_bytes()
    hashes = {}
    for event, [group] in json.loads(hooks)["hooks"].items():
        label = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
        [handler] = group["hooks"]
        identity = {"event_name": label, "hooks": [{"async": False, **{k: handler[k] for k in ("command", "timeout", "type")}}]}
        text = json.dumps(identity, separators=(",", ":"), sort_keys=True)
        hashes[f"{path}:{label}:0:0"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def config(states: Mapping[str, str]) -> bytes:
        return "".join(f'[hooks.state."{key}"]\ntrusted_hash = "{value}"\n' for key, value in states.items()).encode()

    assert codex_trust(hooks, config(hashes), path) == "trusted"
    assert codex_trust(hooks, config(hashes), "/moved/hooks.json") == "untrusted"
    assert codex_trust(hooks, config(dict(list(hashes.items())[1:])), path) == "untrusted"
    assert codex_trust(hooks, config({**hashes, f"{path}:stop:0:0": "sha256:0"}), path) == "unknown"
    assert codex_trust(hooks, b"", path) == "untrusted"
    assert codex_trust(hooks, b"= broken", path) == codex_trust(b"{}", b"", path) == codex_trust(b"{", b"", path) == "unknown"
    off = config(hashes).replace(
        b'[hooks.state."%s:stop:0:0"]' % path.encode(), b'[hooks.state."%s:stop:0:0"]\nenabled = false' % path.encode()
    )
    assert codex_trust(hooks, off, path) == "untrusted"
    assert "trust" in home.init("codex", python="/new")[0].reason, "the product does not trust itself: it asks the user"
    assert "hooks" not in tomllib.loads((home.folder / ".codex/config.toml").read_text())


# -- with real processes


def real_hook() -> str:
    return str(Path(setup.__file__).parent.parent / "hook.py")


@pytest.mark.parametrize("agent", list(SETTINGS))
def test_the_installed_command_is_one_that_a_shell_can_run(home: Home, tmp_path: Path, agent: str) -> None:
    keep = str(tmp_path / "a keep")
    home.init(agent, keep=keep, python=sys.executable, hook=real_hook())
    for event, [group] in home.json(SETTINGS[agent])["hooks"].items():
        command = group["hooks"][0]["command"]
        payload = json.dumps({"session_id": "s", "hook_event_name": event}).encode()
        done = subprocess.run(["/bin/sh", "-c", command], input=payload, capture_output=True, cwd="/", timeout=60)
        assert (done.returncode, done.stdout) == (0, b""), done
    spooled = [name for name in os.listdir(f"{keep}/spool") if name.endswith(".hook")]
    assert len(spooled) + _drained(keep) >= 1
    _quiet(keep)


def _drained(keep: str) -> int:
    return int(os.path.isdir(f"{keep}/journal"))


def _quiet(keep: str) -> None:
    """Waits until the drainers that the hooks started have ended, before their folder is removed."""
    host = RealHost()
    path = f"{keep}/state/drain.lock"
    for _ in range(200):
        if not os.path.exists(path):
            break
        handle = host.open_lock(path)
        free = host.try_lock(handle)
        host.close(handle)
        if free:
            break
        host.sleep(0.05)


def test_a_hook_whose_file_is_gone_does_not_stop_the_agent(home: Home) -> None:
    """A Python that does not find its file exits with 2, which makes an agent stop."""
    home.init("claude", python=sys.executable, hook="/not/there/dreamkeep/capture/hook.py")
    command = home.json(".claude/settings.json")["hooks"]["Stop"][0]["hooks"][0]["command"]
    done = subprocess.run(["/bin/sh", "-c", command], input=b"{}", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs a JavaScript engine")
def test_the_opencode_plugin_passes_events_on_and_never_throws(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    hook = tmp_path / "dreamkeep/capture/hook.py"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"import sys, os\nopen({str(told)!r} + '/' + sys.argv[2], 'wb').write(sys.stdin.buffer.read())\n")
    program = Program(sys.executable, str(hook), "/the keep")
    (tmp_path / "plugin.mjs").write_text(plugin_text(program))
    (tmp_path / "broken.mjs").write_text(plugin_text(program._replace(python="/not/there")))
    (tmp_path / "main.mjs").write_text(
        """
for (const name of ["./broken.mjs", "./plugin.mjs"]) {
  const module = await import(name)
  if (Object.keys(module).length !== 1) throw new Error("one export")
  const on = await Object.values(module)[0]({ directory: "/w" })
  await on.event({ event: { type: "session.created", properties: { info: { id: "s1", title: "T" } } } })
  await on.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
  await on.event({ event: { type: "message.part.updated", properties: {} } })
  await on.event()
  await on["chat.message"]({ sessionID: "s1" }, { message: { id: "m" }, parts: [{ type: "text", text: "hi ü" }] })
  await on["tool.execute.after"]({ sessionID: "s1", callID: "c", tool: "bash" }, { output: "x".repeat(300000) })
  const round = {}; round.round = round
  await on["experimental.session.compacting"](round, {})
  await on["experimental.session.compacting"]({ sessionID: "s1" }, {})
  await on["experimental.chat.system.transform"]()
  await on["experimental.chat.system.transform"]({ sessionID: "s1" }, {})
  const given = { system: ["own"] }
  await on["experimental.chat.system.transform"]({ sessionID: "s1" }, given)
  if (given.system.length !== 1) throw new Error("nothing was said, so nothing is added")
}
"""
    )
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run([node, str(tmp_path / "main.mjs")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    names = {"session.created", "session.idle", "chat.message", "tool.execute.after", "experimental.session.compacting"}
    names.add("experimental.chat.system.transform")
    host = RealHost()
    for _ in range(200):
        payloads = {n: (told / n).read_text() for n in os.listdir(told)}
        if set(payloads) == names and all(payloads.values()):
            break
        host.sleep(0.05)
    assert set(payloads) == names
    created = json.loads(payloads["session.created"])
    assert (created["session_id"], created["cwd"], created["info"]["title"]) == ("s1", "/w", "T")
    assert json.loads(payloads["chat.message"])["parts"][0]["text"] == "hi ü"
    assert len(json.loads(payloads["tool.execute.after"])["output"]["output"]) == 300_000
    assert plugin.commands(plugin_text(program))["session.idle"][3:] == [str(hook), "opencode", "session.idle", "/the keep"]


def test_yaml_texts_are_read_as_they_are_written() -> None:
    for text in ("plain", "it's", 'a "b" \\ c', "ü \U0001f600 \x85 \x7f", "a: b # c", "", "\t\n"):
        assert yamledit.decoded(yamledit.quoted(text)) == text
    with pytest.raises(UnreadableFile):
        yamledit.top(yamledit.lines_of("a: 'x\nb: 1\n"))
