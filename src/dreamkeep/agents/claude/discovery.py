"""Where Claude Code keeps its sessions.

    projects/<folder>/<session>.jsonl                    a session: the file's name says which, whatever its lines say
                      <session>/subagents/agent-*.jsonl  a subagent of it, a session of its own
                        …/workflows/wf_*/agent-*.jsonl   the same
                      agent-*.jsonl                      a subagent of an older client; whose, its lines say

Beside them, belonging to the session (the subagent) that it lies with:

    <session>/tool-results/*                             whole outputs; the transcript holds a preview that names the file. Those
                                                         of subagents lie here, too
    <session>/subagents/agent-*.meta.json                what the subagent is
              subagents/workflows/wf_*/journal.jsonl     how a workflow went

No session's: `memory/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from dreamkeep.agents.contract import DOCUMENT, LINES, META, RESULT, TEXT, WORKFLOW, Source
from dreamkeep.agents.shared.values import table, text
from dreamkeep.host import FolderEntry, Host

AGENT = "claude"
_PROJECTS = "projects"
_ENDING = ".jsonl"
_SUBAGENT = "agent-"
_RESULTS, _SUBAGENTS, _WORKFLOWS = "tool-results", "subagents", "workflows"
_META_ENDING, _JOURNAL = ".meta.json", "journal.jsonl"


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    """All of them are looked at: sessions stay behind when somebody moves the configuration."""
    moved = environment.get("CLAUDE_CONFIG_DIR", "")
    moved = f"{home}/{moved[2:]}" if moved.startswith("~/") else moved
    folders = [moved, f"{home}/.claude", f"{home}/.config/claude"]
    return list(dict.fromkeys(f"{folder.rstrip('/')}/{_PROJECTS}" for folder in folders if folder))


def discover(host: Host, place: str) -> Iterable[Source]:
    """First all that can be read; then the first problem is raised, if there was one."""
    problem: OSError | None = None
    for project in _folders(host, place):
        try:
            inside = host.entries(f"{place}/{project}")
        except OSError as wrong:
            problem = problem or wrong
            continue
        # Transcripts before what lies beside them: that belongs to a session which must be here.
        yield from (_of_project(f"{place}/{project}/{entry.name}") for entry in inside if _is_file(entry))
        for entry in inside:
            if entry.at and entry.at.is_folder:
                try:
                    yield from _of_session(host, f"{place}/{project}/{entry.name}")
                except OSError as wrong:
                    problem = problem or wrong
    if problem:
        raise problem


def _folders(host: Host, place: str) -> list[str]:
    try:
        return [entry.name for entry in host.entries(place) if entry.at and entry.at.is_folder]
    except FileNotFoundError:
        return []


def _is_file(entry: FolderEntry) -> bool:
    return bool(entry.at) and not (entry.at and entry.at.is_folder) and entry.name.endswith(_ENDING) and entry.name != _ENDING


def _of_project(path: str) -> Source:
    stem = _stem(path)
    if stem.startswith(_SUBAGENT):
        return Source(AGENT, path, role="subagent")
    return Source(AGENT, path, session=stem)


def _of_session(host: Host, folder: str) -> Iterator[Source]:
    """What lies in a session's own folder: subagents, then what lies beside transcripts."""
    found: list[Source] = []
    folders = [f"{folder}/{_SUBAGENTS}", f"{folder}/{_RESULTS}"]
    while folders:
        here = folders.pop()
        try:
            inside = host.entries(here)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in inside:
            path = f"{here}/{entry.name}"
            if entry.at and entry.at.is_folder:
                if not here.endswith(_RESULTS) and (entry.name == _WORKFLOWS or here.endswith(f"/{_WORKFLOWS}")):
                    folders.append(path)
            elif entry.at and (source := _in_session(path.split("/"), len(folder.split("/")) - 1)):
                found.append(source._replace(path=path))
    yield from sorted(found, key=lambda source: source.role != "subagent")


def _in_session(parts: list[str], at: int) -> Source | None:
    """A file in a session's folder, which is `parts[at]`, by its name."""
    path, name, session, where = "/".join(parts), parts[-1], parts[at], parts[at + 1]
    if where == _RESULTS:
        return None if len(parts) != at + 3 or name.startswith(".") else Source(AGENT, path, TEXT, session, RESULT)
    if where != _SUBAGENTS:
        return None
    if name.startswith(_SUBAGENT) and name.endswith(_META_ENDING):
        return Source(AGENT, path, DOCUMENT, f"{session}/{name.removesuffix(_META_ENDING)}", META)
    if name.startswith(_SUBAGENT) and name.endswith(_ENDING):
        return Source(AGENT, path, session=f"{session}/{_stem(path)}", role="subagent", parent=session)
    return Source(AGENT, path, LINES, session, WORKFLOW) if name == _JOURNAL and _WORKFLOWS in parts[at + 1 :] else None


def beside(host: Host, source: Source) -> Iterable[Source]:
    """What lies in the folder of a session whose transcript is this; its subagents are sessions of their own, and not meant."""
    if source.role == "subagent" or not source.path.endswith(_ENDING):
        return []
    return [found for found in _of_session(host, source.path.removesuffix(_ENDING)) if found.role == RESULT]


def _stem(path: str) -> str:
    return path.rpartition("/")[2][: -len(_ENDING)]


def claims(path: str) -> Source | None:
    parts = path.split("/")
    if len(parts) < 3 or parts[-1] == _ENDING or ".qwen" in parts:
        return None  # Qwen Code has the same folders
    if parts[-3] == _PROJECTS:
        return _of_project(path) if path.endswith(_ENDING) else None
    for at in range(len(parts) - 3, 1, -1):
        if parts[at + 1] in (_RESULTS, _SUBAGENTS) and parts[at - 2] == _PROJECTS:
            return _in_session(parts, at)
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
