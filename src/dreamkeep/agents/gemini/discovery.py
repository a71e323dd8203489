"""Where Gemini CLI keeps its sessions.

    ~/.gemini/tmp/<project>/chats/session-<minute>-<first 8 of the id>.jsonl    several files may hold one session
    ~/.gemini/tmp/<project>/chats/session-….json                                older: one document, rewritten whole
    ~/.gemini/tmp/<project>/chats/<parent's id>/<id>.jsonl                      a subagent's session
    ….unreadable-<ms>                                                           set aside by the client
    ~/.gemini/projects.json                                                     {"projects": {<folder>: <project>}}

`$GEMINI_CLI_HOME` stands for the home folder. Only the header in the file has the whole id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from os.path import basename, isabs, join

from dreamkeep.agents.contract import DOCUMENT, LINES, Source
from dreamkeep.host import Host, read_file

AGENT = "gemini"
_FILE = re.compile(r"session-\d{4}-\d\d-\d\dT\d\d-\d\d-[^/]{1,100}?\.jsonl?(\.unreadable-\d+)?")
_SUBAGENT = re.compile(r"(?:.*/)?tmp/[^/]+/chats/([^/]+)/([^/]+)\.jsonl(\.unreadable-\d+)?")
_PROJECT = re.compile(r"(.*/\.gemini)/tmp/([^/]+)/chats/")
_LARGEST_LIST = 4 << 20
_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\\x00-\x1f]{1,200})"')


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    moved = environment.get("GEMINI_CLI_HOME")
    return [join(base, ".gemini", "tmp") for base in ([moved] if moved else []) + [home]]


def discover(host: Host, place: str) -> Iterable[Source]:
    """First all that can be read; then the first problem is raised, if there was one."""
    problem: OSError | None = None
    for project in _folders(host, place):
        try:
            yield from _chats(host, join(project, "chats"))
        except OSError as error:
            problem = problem or error
    if problem:
        raise problem


def _chats(host: Host, chats: str) -> Iterable[Source]:
    if host.stat(chats) is None:
        return
    for entry in host.entries(chats):
        path = join(chats, entry.name)
        if entry.at is None:
            continue
        names = host.names(path) if entry.at.is_folder else [""]
        for name in names:
            found = claims(join(path, name) if name else path)
            if found:
                yield found


def _folders(host: Host, place: str) -> list[str]:
    if host.stat(place) is None:
        return []
    return [join(place, entry.name) for entry in host.entries(place) if entry.at and entry.at.is_folder]


def claims(path: str) -> Source | None:
    name = basename(path)
    if _FILE.fullmatch(name):
        role = "unreadable" if ".unreadable-" in name else "main"
        form = LINES if ".jsonl" in name else DOCUMENT
        return Source(AGENT, path, form, role=role)
    subagent = _SUBAGENT.fullmatch(path)
    if subagent:
        return Source(
            AGENT, path, LINES, session=subagent[2], role="unreadable" if subagent[3] else "subagent", parent=subagent[1]
        )
    return None


def identify(path: str, head: bytes) -> str:
    """In texts, quotes are escaped, so this is a member's name. Other agents have it, too, but only Gemini with a hash beside
    it."""
    if not _FILE.fullmatch(basename(path)) and b'"projectHash"' not in head:
        return ""
    found = _ID.search(head)
    return found[1].decode("utf-8", "replace") if found else ""


def folder(host: Host, path: str) -> str:
    """The folder of the session's project, by the client's own list; "" if unknown."""
    place = _PROJECT.match(path)
    if not place:
        return ""
    listed = f"{place[1]}/projects.json"
    try:
        at = host.stat(listed)
        if at is None or at.is_folder or at.size > _LARGEST_LIST:
            return ""
        projects = json.loads(read_file(host, listed))["projects"]
        folders = [path for path, name in projects.items() if name == place[2] and isabs(path)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # half written, or of another form
    return folders[0] if len(folders) == 1 else ""
