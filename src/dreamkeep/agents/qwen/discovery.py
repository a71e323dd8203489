"""Where Qwen Code keeps its sessions.

    ~/.qwen/projects/<project>/chats/<session>.jsonl
    ~/.qwen/projects/<project>/subagents/<session>/agent-<id>.jsonl    a subagent of it, a session of its own
    ~/.qwen/tmp/<project>/chats/<session>.jsonl                        older

`$QWEN_RUNTIME_DIR` and `$QWEN_HOME` replace `~/.qwen`; we look at all three, because old sessions stay where they are. The
place of subagents is from the client's source, not observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dreamkeep.agents.contract import Source
from dreamkeep.agents.shared.folders import claimed, inside
from dreamkeep.host import Host

AGENT = "qwen"
_MAIN = re.compile(r"(?:.*/)?(?:projects|tmp)/[^/]+/chats/(?!session-)([^/]+)\.jsonl")
_SUBAGENT = re.compile(r"(?:.*/)?projects/[^/]+/subagents/([^/]+)/([^/]+)\.jsonl")
_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\\x00-\x1f]{1,200})"')


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    moved = [environment.get(name, "") for name in ("QWEN_RUNTIME_DIR", "QWEN_HOME")]
    folders = [f"{home}/{one[2:]}" if one.startswith("~/") else one for one in moved if one]
    folders.append(f"{home}/.qwen")
    return list(dict.fromkeys(f"{folder.rstrip('/')}/{kind}" for folder in folders for kind in ("projects", "tmp")))


def discover(host: Host, place: str) -> Iterable[Source]:
    """First all that can be read; then the first problem is raised, if there was one."""
    problems: list[OSError] = []
    for project in _folders(host, place, problems):
        yield from claimed(inside(host, f"{project}/chats", problems), claims)
        for session in _folders(host, f"{project}/subagents", problems):
            yield from claimed(inside(host, session, problems), claims)
    if problems:
        raise problems[0]


def _folders(host: Host, folder: str, problems: list[OSError]) -> list[str]:
    return [path for path, is_folder in inside(host, folder, problems) if is_folder]


def claims(path: str) -> Source | None:
    main = _MAIN.fullmatch(path)
    if main:
        return Source(AGENT, path, session=main[1])
    subagent = _SUBAGENT.fullmatch(path)
    if subagent and ".claude" not in path.split("/"):
        return Source(AGENT, path, session=f"{subagent[1]}/{subagent[2]}", role="subagent", parent=subagent[1])
    return None


def identify(path: str, head: bytes) -> str:
    """By the name; else by records with content in Gemini's form and ids like Claude's."""
    named = claims(path)
    if named:
        return named.session
    found = _ID.search(head)
    if not found or b'"uuid"' not in head or not (b'"parts"' in head or b'"systemPayload"' in head):
        return ""
    return found[1].decode("utf-8", "replace")
