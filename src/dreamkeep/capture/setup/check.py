"""What `doctor` says about the hooks: are they there, do the files they name exist, will the agent run them?"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dreamkeep.capture.setup import jsonedit, tomledit, wanted
from dreamkeep.capture.setup.apply import Target
from dreamkeep.capture.setup.plan import Json
from dreamkeep.capture.setup.plugged import plugged
from dreamkeep.capture.setup.targets import found, targets_of
from dreamkeep.capture.setup.text import Unreadable, bytes_at, text_of
from dreamkeep.capture.setup.wanted import AGENTS, Program
from dreamkeep.host import Host

TRUSTED, UNTRUSTED, UNKNOWN = "trusted", "untrusted", "unknown"
#: Fewer days than this may be gone before anybody has imported what was written.
_FEW_DAYS = 7
_CODEX_TIMEOUT_S = 600
_CODEX_END_S = (1, 3)

Check = dict[str, Any]


def examine(host: Host, home: str, environment: Mapping[str, str], *, hook: str = "", keep: str = "") -> list[Check]:
    """One entry a finding, as doctor has them: `{check, ok, what, next}`. `keep`: the one that hooks should write to, if any."""
    checks: list[Check] = []
    for agent in AGENTS:
        if found(host, agent, home, environment):
            checks += _guarded(host, agent, home, environment, Program("", hook, keep))
    return checks


def _guarded(host: Host, agent: str, home: str, environment: Mapping[str, str], program: Program) -> list[Check]:
    """An agent whose settings can't be read is a finding, not the end of the others."""
    try:
        return list(_agent(host, agent, home, environment, program))
    except Unreadable as problem:
        return [_entry(agent, False, f"its settings can't be read ({problem})", "Correct them; dreamkeep won't change them.")]
    except OSError as problem:
        return [_entry(agent, False, f"can't check: {problem}", "Check that this user can read the agent's settings.")]


def _entry(agent: str, ok: bool, what: str, step: str = "") -> Check:
    return {"check": "hooks", "ok": ok, "what": f"{agent}: {what}", "next": step}


def _agent(host: Host, agent: str, home: str, environment: Mapping[str, str], program: Program) -> Iterator[Check]:
    hooks = targets_of(host, agent, home, environment, program, mcp=False)[0]
    data = bytes_at(host, hooks.file)
    there = hooks.edit.commands(data) if data is not None else {}
    again = f"dreamkeep init --agent {agent}"
    plugin = plugged(host, agent, home, environment)
    if plugin and there:
        step = f"Remove one of them: run `dreamkeep init --uninstall --agent {agent}`, or remove the plugin."
        yield _entry(agent, False, "has hooks from both `init` and the plugin, so everything is recorded twice", step)
    elif plugin:
        yield _entry(agent, True, "hooks come with the plugin")
    elif not there:
        yield _entry(agent, True, "no hooks; only `ingest` and `watch` import its sessions", again)
    if there:
        yield from _installed(host, agent, hooks, there, program, again)
        if agent == "codex":
            yield from _codex(host, hooks.file, data or b"")
    if plugin and not _on_path(host, "dreamkeep-hook", environment.get("PATH", "")):
        step = "Install it (`pipx install`, `uv tool install`), or use `dreamkeep init` instead of the plugin."
        yield _entry(agent, False, "has the plugin, which needs `dreamkeep-hook` on the PATH, but it is missing", step)
    yield from _settings(agent, hooks, data, bool(there))
    for target in targets_of(host, agent, home, environment, program, mcp=True):
        yield from _server(host, agent, target, again)


def _on_path(host: Host, name: str, path: str) -> bool:
    return any(host.stat(f"{folder}/{name}") is not None for folder in path.split(os.pathsep) if os.path.isabs(folder))


def _server(host: Host, agent: str, target: Target, again: str) -> Iterator[Check]:
    """The MCP server, where we put it: does what it starts exist?"""
    try:
        servers = _servers(target, bytes_at(host, target.file) or b"")
    except Unreadable as problem:
        yield _entry(agent, False, f"{target.file} can't be read ({problem})", "Correct it; dreamkeep won't change it.")
        return
    entry = servers.get("dreamkeep") if isinstance(servers, dict) else None
    command = entry.get("command") if isinstance(entry, dict) else None
    word = command[0] if isinstance(command, list) and command else command
    if isinstance(word, str) and os.path.isabs(word) and host.stat(word) is None:
        yield _entry(agent, False, f"its MCP server starts {word}, which no longer exists", again)


def _servers(target: Target, data: bytes) -> Any:
    if target.file.endswith(".toml"):
        return tomledit.lookup(tomledit.read(text_of(data).body), ("mcp_servers",))
    return jsonedit.members_of(data).get(target.edit.holder) if isinstance(target.edit, Json) and target.edit.holder else None


def _installed(
    host: Host, agent: str, hooks: Target, there: Mapping[str, Sequence[str]], program: Program, again: str
) -> Iterator[Check]:
    missing = [event for event in wanted.events_for(agent) if event not in there and event != "PostCompact"]
    if missing:
        yield _entry(agent, False, f"hooks are missing for {', '.join(missing)}", again)
    words = {word for command in there.values() for word in _files_in(command)}
    gone = sorted(word for word in words if host.stat(word) is None)
    for word in gone:
        yield _entry(agent, False, f"hooks start {word}, which no longer exists", again)
    keeps = sorted({keep for command in there.values() for keep in command[_hook_at(command) + 3 :][:1]} - {program.keep})
    if program.keep and keeps:
        yield _entry(agent, True, f"hooks write to another keep ({', '.join(keeps)})", f"{again} --keep {program.keep}")
    if not missing and not gone:
        yield _entry(agent, True, f"{len(there)} hooks in {hooks.file}")


def _files_in(command: Sequence[str]) -> list[str]:
    """The interpreter and the hook: what must be there."""
    return [word for word in (command[0], command[_hook_at(command)]) if os.path.isabs(word)]


def _hook_at(command: Sequence[str]) -> int:
    """Behind it come the agent, the event and the keep."""
    return next((n for n, word in enumerate(command) if word.endswith("hook.py")), 0)


def _settings(agent: str, hooks: Target, data: bytes | None, installed: bool) -> Iterator[Check]:
    """Switches of the agent's own that matter."""
    value = jsonedit.members_of(data) if hooks.file.endswith(".json") else {}
    if installed and agent in ("claude", "qwen") and value.get("disableAllHooks") is True:
        yield _entry(agent, False, "`disableAllHooks` stops it from running any hook", f"Remove it from {hooks.file}.")
    config = value.get("hooksConfig")
    if installed and agent in ("gemini", "qwen") and isinstance(config, dict) and config.get("enabled") is False:
        yield _entry(agent, False, "`hooksConfig.enabled` stops it from running any hook", f"Set it to true in {hooks.file}.")
    days = value.get("cleanupPeriodDays")
    if agent == "claude" and isinstance(days, (int, float)) and not isinstance(days, bool) and days < _FEW_DAYS:
        what = "writes no sessions at all" if days <= 0 else f"deletes sessions after {days:g} days"
        yield _entry(agent, False, f"{what} (`cleanupPeriodDays`)", f"Raise it in {hooks.file}; 30 is its default.")


# -- Codex


def _codex(host: Host, path: str, hooks_json: bytes) -> Iterator[Check]:
    config = bytes_at(host, f"{os.path.dirname(path)}/config.toml") or b""
    # It resolves links in CODEX_HOME, but not in the home folder.
    verdicts = {codex_trust(hooks_json, config, where) for where in (path, host.real_path(path))}
    if TRUSTED in verdicts:
        return
    trust = UNKNOWN if UNKNOWN in verdicts else UNTRUSTED
    what = {
        UNTRUSTED: "its hooks are not trusted yet, so it skips them silently",
        UNKNOWN: "its hooks may have changed since they were trusted; if so, it skips them silently",
    }[trust]
    yield _entry("codex", False, what, "Start `codex`, type /hooks, and trust them.")


def codex_trust(hooks_json: bytes, config_toml: bytes, path: str) -> str:
    """Whether Codex will run our hooks. `path`: of hooks.json, as Codex finds it.

    It keeps a hash of each hook that the user has trusted, under the file, the event and the position. The hash is over the
    hook's meaning, in a form that was seen in its sources and may change: what we can't confirm is `unknown`, not `untrusted`.
    """
    try:
        states = tomledit.lookup(tomledit.read(text_of(config_toml).body), ("hooks", "state"))
        hooks = jsonedit.members_of(hooks_json).get("hooks")
    except Unreadable:
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
                if isinstance(handler, dict) and wanted.is_our_hook(handler.get("command"), "", "codex"):
                    yield f"{label}:{g}:{n}", _identity(label, group, handler)


def _identity(label: str, group: Mapping[str, Any], handler: Mapping[str, Any]) -> dict[str, Any]:
    given = handler.get("timeout")
    timeout = given if isinstance(given, int) else (_CODEX_END_S[0] if label == "session_end" else _CODEX_TIMEOUT_S)
    timeout = max(timeout, 1) if label != "session_end" else min(max(timeout, _CODEX_END_S[0]), _CODEX_END_S[1])
    hook = {"async": handler.get("async") is True, "command": handler["command"], "timeout": timeout, "type": "command"}
    matcher = group.get("matcher") if label not in ("user_prompt_submit", "stop") else None
    return {"event_name": label, "hooks": [hook], **({"matcher": matcher} if isinstance(matcher, str) else {})}
