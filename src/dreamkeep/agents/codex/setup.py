"""Codex CLI's settings: hooks in `hooks.json`, the MCP server in `config.toml`. CODEX_HOME moves both.

It runs no hook that it has not been told to trust, and says nothing about it: `doctor` looks.
Our plugin, if the user has it: `config.toml` has [plugins."dreamkeep@MARKETPLACE"], unless `enabled = false`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dreamkeep.agents.claude.setup import EVENTS as CLAUDE_EVENTS
from dreamkeep.capture.setup import jsonedit, tomledit
from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.offer import HOOK_TIMEOUT_S, AgentPlace, Finding, json_hooks, our_plugins
from dreamkeep.capture.setup.plan import Toml
from dreamkeep.capture.setup.program import Program, is_our_hook
from dreamkeep.capture.setup.text import UnreadableFile, bytes_at, text_of
from dreamkeep.host import Host

AGENT = "codex"
EVENTS = tuple(event for event in CLAUDE_EVENTS if event != "SubagentStop")
NEXT = "Codex runs only trusted hooks: start `codex` once, type /hooks and trust them"
NEXT_AFTER_REMOVAL = "Codex identifies trusted hooks by their position: check /hooks once"
TRUSTED, UNTRUSTED, UNKNOWN = "trusted", "untrusted", "unknown"
#: How long Codex waits for a hook without a timeout; for one at a session's end, at least and at most.
_TIMEOUT_S = 600
_ENDS_S = (1, 3)


def place(home: str, environment: Mapping[str, str]) -> AgentPlace:
    folder = environment.get("CODEX_HOME", "").rstrip("/") or f"{home}/.codex"
    return AgentPlace((folder,), f"{folder}/hooks.json", (f"{folder}/config.toml",))


def targets(host: Host, where: AgentPlace, program: Program, *, mcp: bool) -> list[SetupTarget]:
    hooks = json_hooks(AGENT, program, EVENTS, timeout, comments=False)
    server = [SetupTarget(AGENT, where.server[0], Toml("mcp_servers", program.server_entry()))] if mcp else []
    return [SetupTarget(AGENT, where.hooks, hooks), *server]


def timeout(event: str) -> int:
    return _ENDS_S[1] if event == "SessionEnd" else HOOK_TIMEOUT_S


def has_plugin(host: Host, where: AgentPlace) -> bool:
    plugins = tomledit.lookup(tomledit.read(text_of(bytes_at(host, where.server[0]) or b"").body), ("plugins",))
    return any(not isinstance(one, dict) or one.get("enabled") is not False for one in our_plugins(plugins))


def check(host: Host, where: AgentPlace, hooks: bytes | None, installed: bool) -> Iterator[Finding]:
    if not installed:
        return
    config = bytes_at(host, f"{os.path.dirname(where.hooks)}/config.toml") or b""
    # Codex resolves links in CODEX_HOME, but not in the home folder.
    verdicts = {trust(hooks or b"", config, path) for path in (where.hooks, host.real_path(where.hooks))}
    if TRUSTED in verdicts:
        return
    verdict = UNKNOWN if UNKNOWN in verdicts else UNTRUSTED
    what = {
        UNTRUSTED: "its hooks are not trusted yet, so it skips them silently",
        UNKNOWN: "its hooks may have changed since they were trusted; if so, it skips them silently",
    }[verdict]
    yield Finding(what, "Start `codex`, type /hooks, and trust them.")


def trust(hooks_json: bytes, config_toml: bytes, path: str) -> str:
    """Whether Codex will run our hooks. `path`: of hooks.json, as Codex finds it.

    It keeps a hash of each hook that the user has trusted, under the file, the event and the position. The hash is over the
    hook's meaning, in a form that was seen in its sources and may change: what we can't confirm is `unknown`, not `untrusted`.
    """
    try:
        states = tomledit.lookup(tomledit.read(text_of(config_toml).body), ("hooks", "state"))
        hooks = jsonedit.members_of(hooks_json).get("hooks")
    except UnreadableFile:
        return UNKNOWN
    states = states if isinstance(states, dict) else {}
    verdicts = {_verdict(states.get(f"{path}:{key}"), identity) for key, identity in _our_identities(hooks)}
    return next((verdict for verdict in (UNTRUSTED, UNKNOWN, TRUSTED) if verdict in verdicts), UNKNOWN)


def _verdict(state: Any, identity: Mapping[str, Any]) -> str:
    seen = state.get("trusted_hash") if isinstance(state, dict) else None
    if not isinstance(state, dict) or not isinstance(seen, str) or state.get("enabled") is False:
        return UNTRUSTED
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return TRUSTED if seen == f"sha256:{hashlib.sha256(canonical).hexdigest()}" else UNKNOWN


def _our_identities(hooks: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event:group:position, what Codex makes of the hook before it hashes it)."""
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        label = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for g, group in enumerate(groups if isinstance(groups, list) else ()):
            handlers = group.get("hooks") if isinstance(group, dict) else None
            for n, handler in enumerate(handlers if isinstance(handlers, list) else ()):
                if isinstance(handler, dict) and is_our_hook(handler.get("command"), "", AGENT):
                    yield f"{label}:{g}:{n}", _identity(label, group, handler)


def _identity(label: str, group: Mapping[str, Any], handler: Mapping[str, Any]) -> dict[str, Any]:
    given = handler.get("timeout")
    timeout = given if isinstance(given, int) else (_ENDS_S[0] if label == "session_end" else _TIMEOUT_S)
    timeout = max(timeout, 1) if label != "session_end" else min(max(timeout, _ENDS_S[0]), _ENDS_S[1])
    hook = {"async": handler.get("async") is True, "command": handler["command"], "timeout": timeout, "type": "command"}
    matcher = group.get("matcher") if label not in ("user_prompt_submit", "stop") else None
    return {"event_name": label, "hooks": [hook], **({"matcher": matcher} if isinstance(matcher, str) else {})}
