"""Where Claude Code keeps its sessions.

    projects/<folder>/<session>.jsonl                    a session: the file's name says which, whatever its lines say
                      <session>/subagents/agent-*.jsonl  a subagent of it, a session of its own
                        …/workflows/wf_*/agent-*.jsonl   the same
                      agent-*.jsonl                      a subagent of an older client; whose, its lines say

No sessions: `journal.jsonl` of workflows, `*.meta.json`, `tool-results/`, `memory/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from dreamkeep.capture.sources import Source
from dreamkeep.host import Entry, Host
from dreamkeep.session.formats.common import table, text

AGENT = "claude"
_PROJECTS = "projects"
_ENDING = ".jsonl"
_SUBAGENT = "agent-"


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    """All of them are looked at: sessions stay behind when somebody moves the configuration."""
    moved = environment.get("CLAUDE_CONFIG_DIR", "")
    moved = f"{home}/{moved[2:]}" if moved.startswith("~/") else moved
    folders = [moved, f"{home}/.claude", f"{home}/.config/claude"]
    return list(dict.fromkeys(f"{folder.rstrip('/')}/{_PROJECTS}" for folder in folders if folder))


def discover(host: Host, place: str) -> Iterable[Source]:
    """What can be read is found before a folder that can't be is told."""
    problem: OSError | None = None
    for project in _folders(host, place):
        try:
            inside = host.entries(f"{place}/{project}")
        except OSError as wrong:
            problem = problem or wrong
            continue
        for entry in inside:
            path = f"{place}/{project}/{entry.name}"
            if _is_file(entry):
                yield _of_project(path)
            elif entry.at and entry.at.is_folder:
                try:
                    yield from _subagents(host, path)
                except OSError as wrong:
                    problem = problem or wrong
    if problem:
        raise problem


def _folders(host: Host, place: str) -> list[str]:
    try:
        return [entry.name for entry in host.entries(place) if entry.at and entry.at.is_folder]
    except FileNotFoundError:
        return []


def _is_file(entry: Entry) -> bool:
    return bool(entry.at) and not (entry.at and entry.at.is_folder) and entry.name.endswith(_ENDING) and entry.name != _ENDING


def _of_project(path: str) -> Source:
    stem = _stem(path)
    if stem.startswith(_SUBAGENT):
        return Source(AGENT, path, role="subagent")
    return Source(AGENT, path, session=stem)


def _subagents(host: Host, session_folder: str) -> Iterator[Source]:
    parent = session_folder.rpartition("/")[2]
    folders = [f"{session_folder}/subagents"]
    while folders:
        folder = folders.pop()
        try:
            inside = host.entries(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in inside:
            path = f"{folder}/{entry.name}"
            if _is_file(entry) and entry.name.startswith(_SUBAGENT):
                yield Source(AGENT, path, session=f"{parent}/{_stem(path)}", role="subagent", parent=parent)
            elif entry.at and entry.at.is_folder and (entry.name == "workflows" or folder.endswith("/workflows")):
                folders.append(path)


def _stem(path: str) -> str:
    return path.rpartition("/")[2][: -len(_ENDING)]


def claims(path: str) -> Source | None:
    parts = path.split("/")
    if len(parts) < 3 or not parts[-1].endswith(_ENDING) or parts[-1] == _ENDING or ".qwen" in parts:
        return None  # Qwen Code has the same folders
    if parts[-3] == _PROJECTS:
        return _of_project(path)
    if _PROJECTS in parts[:-4] and "subagents" in parts[2:-1] and parts[-1].startswith(_SUBAGENT):
        parent = parts[parts.index("subagents", 2) - 1]
        return Source(AGENT, path, session=f"{parent}/{_stem(path)}", role="subagent", parent=parent)
    return None


def identify(path: str, head: bytes) -> str:
    """By the name; else by a line that only this agent writes. An old subagent is named after the session in its lines."""
    named = claims(path)
    if named and named.session:
        return named.session
    stem = _stem(path) if path.endswith(_ENDING) else ""
    for line in head.split(b"\n"):
        if b'"isSidechain"' not in line:
            continue
        try:
            found = table(json.loads(line))
        except (ValueError, RecursionError):
            continue  # cut off, or broken: the next line may tell
        session = text(found.get("sessionId"))
        if session and "parentUuid" in found and "isSidechain" in found:
            return f"{session}/{stem}" if stem.startswith(_SUBAGENT) else session
    return ""
