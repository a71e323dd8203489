"""What each agent is to have: which hooks with which commands, which MCP server, in which files. Pure: looks at nothing.

Every path is absolute and every word quoted for a shell: agents start hooks with their own PATH and working folder. The hook's
own path is also the mark by which our entries are known again; so those of an older install elsewhere are changed, not doubled.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.capture import spool

#: The agents that can be set up, in the order in which they are.
AGENTS = ("claude", "codex", "gemini", "qwen", "opencode", "hermes")
SERVER = "dreamkeep"

#: How the end of our hook's path looks wherever it is installed.
_HOOK_TAIL = "/dreamkeep/capture/hook.py"

_SECONDS = 10
#: Claude ends a SessionEnd hook that has no timeout of its own after a second; Codex allows three.
_CLAUDE_END_S = 60
_CODEX_END_S = 3
#: The first Claude Code that knows PostCompact: an older one throws the whole settings file away for a name it does not know.
_POST_COMPACT_SINCE = (2, 1, 76)

_CLAUDE = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PreCompact",
    "PostCompact",
    "SubagentStop",
    "Stop",
    "SessionEnd",
)
EVENTS: Mapping[str, Sequence[str]] = {
    "claude": _CLAUDE,
    "codex": tuple(event for event in _CLAUDE if event != "SubagentStop"),
    # Not PreCompress (fires before every request), not Before/AfterModel (fires for every piece of an answer).
    "gemini": ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd"),
    "qwen": _CLAUDE,
    "opencode": (
        "session.created",
        "session.idle",
        "session.compacted",
        "session.deleted",
        "chat.message",
        "tool.execute.after",
        "experimental.session.compacting",
        "experimental.chat.system.transform",
    ),
    "hermes": (
        "on_session_start",
        "pre_llm_call",
        "post_tool_call",
        "post_llm_call",
        "on_session_end",
        "on_session_finalize",
    ),
}


class Program(NamedTuple):
    """What is to be started: the Python that dreamkeep runs on, its hook file, the keep. All absolute."""

    python: str
    hook: str
    keep: str

    def hook_words(self, agent: str, event: str) -> list[str]:
        return [self.python, "-I", "-S", self.hook, agent, event, self.keep]

    def hook_command(self, agent: str, event: str) -> str:
        return spool.hook_command(self.python, self.hook, agent, event, self.keep)

    def server_words(self) -> list[str]:
        # -P: the agent starts it in the project's folder, and nothing that lies there may be imported.
        return ["-P", "-m", "dreamkeep", "mcp", "--keep", self.keep]


def is_our_hook(command: Any, hook: str, agent: str = "") -> bool:
    """Whether a command is a call of our hook (for this agent), of this install or another one."""
    words = words_of(command) if isinstance(command, str) else []
    if words[-2:] == ["||", ":"]:
        del words[-2:]
    at = next((n for n, word in enumerate(words[:4]) if word.endswith(_HOOK_TAIL) or (hook and word == hook)), -1)
    # Our form and nothing else: what a user put around it is his, and stays.
    if at < 1 or not set(words[1:at]) <= {"-I", "-S"} or len(words) > at + 5 or any(set(word) & set(";&|") for word in words):
        return False
    return not agent or words[at + 1 : at + 2] == [agent]


def words_of(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def is_our_server(entry: Any) -> bool:
    """Whether an MCP entry starts our server, whichever Python and keep it names."""
    if not isinstance(entry, Mapping):
        return False
    words: list[Any] = []
    for key in ("command", "args"):
        value = entry.get(key)
        words += value if isinstance(value, list) else [value]
    return any(words[n : n + 3] == ["-m", "dreamkeep", "mcp"] for n in range(len(words)))


def events_for(agent: str, version: tuple[int, ...] = ()) -> Sequence[str]:
    """`version`: the agent's own, as far as it is known."""
    events = EVENTS[agent]
    if agent == "claude" and version and version < _POST_COMPACT_SINCE:
        return tuple(event for event in events if event != "PostCompact")
    return events


def handler(agent: str, event: str, program: Program) -> dict[str, Any]:
    """One hook in the form that Claude, Codex, Gemini and Qwen share."""
    return {"type": "command", "command": program.hook_command(agent, event), "timeout": timeout(agent, event)}


def timeout(agent: str, event: str) -> int:
    if event == "SessionEnd" and agent in ("claude", "codex"):
        return _CLAUDE_END_S if agent == "claude" else _CODEX_END_S
    # Gemini counts in milliseconds; Qwen once did, and now takes numbers from a thousand on for that.
    return _SECONDS * (1000 if agent in ("gemini", "qwen") else 1)


def server(agent: str, program: Program) -> dict[str, Any]:
    if agent == "opencode":
        return {"type": "local", "command": [program.python, *program.server_words()], "enabled": True}
    entry = {"command": program.python, "args": program.server_words()}
    return {"type": "stdio", **entry} if agent == "claude" else entry


# -- where


class Place(NamedTuple):
    """An agent's folders and files. `signs`: if one of them is there, the agent is."""

    signs: Sequence[str]
    #: By what they hold: "hooks" and "server"; several names where the agent reads the first that is there.
    hooks: str
    server: Sequence[str]


def place(agent: str, home: str, environment: Mapping[str, str]) -> Place:
    """`environment` is empty when the user named a home."""
    moved = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME", "hermes": "HERMES_HOME"}
    folder = environment.get(moved.get(agent, ""), "").rstrip("/") or f"{home}/.{agent}"
    match agent:
        case "claude":
            # Beside the folder, unless the folder was moved: then in it.
            state = f"{folder}/.claude.json" if environment.get("CLAUDE_CONFIG_DIR") else f"{home}/.claude.json"
            return Place((folder, state), f"{folder}/settings.json", (state,))
        case "codex":
            return Place((folder,), f"{folder}/hooks.json", (f"{folder}/config.toml",))
        case "opencode":
            config = f"{environment.get('XDG_CONFIG_HOME', '').rstrip('/') or f'{home}/.config'}/opencode"
            kept = f"{environment.get('XDG_DATA_HOME', '').rstrip('/') or f'{home}/.local/share'}/opencode"
            names = (f"{config}/opencode.jsonc", f"{config}/opencode.json")
            return Place((config, kept), f"{config}/plugins/dreamkeep.js", names)
        case "hermes":
            return Place((folder,), f"{folder}/config.yaml", (f"{folder}/config.yaml",))
    return Place((folder,), f"{folder}/settings.json", (f"{folder}/settings.json",))
