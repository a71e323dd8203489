"""Where Claude Code keeps its sessions.

    projects/<folder>/<session>.jsonl                    a session: the file's name is its id, whatever its lines say
                      <session>/subagents/agent-*.jsonl  a subagent of it, a session of its own
                        …/workflows/wf_*/agent-*.jsonl   the same
                      agent-*.jsonl                      a subagent of an older client; its lines name the session

Beside them, files of the session (the subagent) with which they lie:

    <session>/tool-results/*                             whole outputs, also of subagents; the transcript holds a preview that
                                                         names the file
    <session>/subagents/agent-*.meta.json                what the subagent is
              subagents/workflows/wf_*/journal.jsonl     how a workflow went

`memory/` belongs to no session.
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
    """All of them: old sessions stay in the old place when somebody moves the configuration."""
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
        # Transcripts come before the files beside them: these need a session that is known.
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
    """The sources in a session's own folder: subagents, then the files beside transcripts."""
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
    """The files in the folder of this transcript's session. Its subagents are sessions of their own, and not among them."""
    if source.role == "subagent" or not source.path.endswith(_ENDING):
        return []
    return [found for found in _of_session(host, source.path.removesuffix(_ENDING)) if found.role == RESULT]


def _stem(path: str) -> str:
    return path.rpartition("/")[2][: -len(_ENDING)]


def claims(path: str) -> Source | None:
    parts = path.split("/")
    if len(parts) < 3 or parts[-1] == _ENDING or ".qwen" in parts:
        return None  # Qwen Code has folders of the same names
    if parts[-3] == _PROJECTS:
        return _of_project(path) if path.endswith(_ENDING) else None
    for at in range(len(parts) - 3, 1, -1):
        if parts[at + 1] in (_RESULTS, _SUBAGENTS) and parts[at - 2] == _PROJECTS:
            return _in_session(parts, at)
    return None


def identify(path: str, head: bytes) -> str:
    """By the name; else by a line that only this agent writes. An old subagent's id begins with the session in its lines."""
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
            continue  # cut off, or broken: the next line may be whole
        session = text(found.get("sessionId"))
        if session and "parentUuid" in found and "isSidechain" in found:
            return f"{session}/{stem}" if stem.startswith(_SUBAGENT) else session
    return ""
