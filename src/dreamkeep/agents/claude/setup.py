"""Claude Code's settings: hooks in `settings.json`, the MCP server in `.claude.json`. CLAUDE_CONFIG_DIR moves both.

Our plugin, if the user has it: `settings.json` has enabledPlugins."dreamkeep@MARKETPLACE": true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from dreamkeep.capture.setup import jsonedit
from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.jsonedit import Syntax
from dreamkeep.capture.setup.offer import HOOK_TIMEOUT_S, AgentPlace, Finding, json_hooks, our_plugins
from dreamkeep.capture.setup.plan import Json, Switch
from dreamkeep.capture.setup.program import Program
from dreamkeep.capture.setup.text import bytes_at
from dreamkeep.host import Host, read_file

AGENT = "claude"
EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PreCompact",
    "PostCompact",
    "SubagentStop",
    "Stop",
    "SessionEnd",
)
NEXT = NEXT_AFTER_REMOVAL = ""
DISABLED = Switch(("disableAllHooks",), True, "Remove it from")
#: Claude ends a SessionEnd hook without a timeout of its own after a second.
_END_S = 60
#: The first version that knows PostCompact: an older one discards the whole settings file for an unknown name.
_POST_COMPACT_SINCE = (2, 1, 76)
#: With fewer days, transcripts may be deleted before they are imported.
_FEW_DAYS = 7


def place(home: str, environment: Mapping[str, str]) -> AgentPlace:
    folder = environment.get("CLAUDE_CONFIG_DIR", "").rstrip("/") or f"{home}/.claude"
    # Beside the folder, unless the folder was moved: then in it.
    state = f"{folder}/.claude.json" if environment.get("CLAUDE_CONFIG_DIR") else f"{home}/.claude.json"
    return AgentPlace((folder, state), f"{folder}/settings.json", (state,))


def targets(host: Host, where: AgentPlace, program: Program, *, mcp: bool) -> list[SetupTarget]:
    state = where.server[0]
    note = "Claude Code discards a settings file with comments: remove them"
    hooks = json_hooks(AGENT, program, events_for(_version(host, state)), timeout, comment_note=note, switches=(DISABLED,))
    server = Json(AGENT, program.hook, Syntax(), None, "mcpServers", {"type": "stdio", **program.server_entry()})
    return [SetupTarget(AGENT, where.hooks, hooks), *([SetupTarget(AGENT, state, server)] if mcp else [])]


def events_for(version: tuple[int, ...] = ()) -> tuple[str, ...]:
    """`version`: Claude's own, if known."""
    old = bool(version) and version < _POST_COMPACT_SINCE
    return tuple(event for event in EVENTS if event != "PostCompact") if old else EVENTS


def timeout(event: str) -> int:
    return _END_S if event == "SessionEnd" else HOOK_TIMEOUT_S


def has_plugin(host: Host, where: AgentPlace) -> bool:
    return any(on is True for on in our_plugins(jsonedit.members_of(bytes_at(host, where.hooks)).get("enabledPlugins")))


def check(host: Host, where: AgentPlace, hooks: bytes | None, installed: bool) -> Iterator[Finding]:
    days = jsonedit.members_of(hooks).get("cleanupPeriodDays")
    if isinstance(days, (int, float)) and not isinstance(days, bool) and days < _FEW_DAYS:
        what = "writes no sessions at all" if days <= 0 else f"deletes sessions after {days:g} days"
        yield Finding(f"{what} (`cleanupPeriodDays`)", f"Raise it in {where.hooks}; 30 is its default.")


def _version(host: Host, state: str) -> tuple[int, ...]:
    """Claude's version by its own file; () if unknown."""
    try:
        told = json.loads(read_file(host, state)) if host.stat(state) else {}
    except (OSError, ValueError, RecursionError):
        return ()
    seen = [told.get(key) for key in ("lastReleaseNotesSeen", "lastOnboardingVersion")] if isinstance(told, dict) else []
    known = [tuple(map(int, v.split("."))) for v in seen if isinstance(v, str) and re.fullmatch(r"\d{1,9}\.\d{1,9}\.\d{1,9}", v)]
    return max(known, default=())
