"""Where Codex CLI keeps its sessions.

    $CODEX_HOME or ~/.codex
      sessions/YYYY/MM/DD/rollout-<local time>-<thread id>[_<rollout id>].jsonl
      archived_sessions/rollout-….jsonl
      session_index.jsonl               {"id","thread_name","updated_at"}: names of all threads, appended; the newest counts
    cold files become ….jsonl.zst

The thread id is the session; a rollout id marks another file of the same session. The SQLite files beside are caches of these.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping

from dreamkeep.agents.contract import LINES, LINES_ZST, NAMES, SHARED, Source
from dreamkeep.agents.shared.folders import first_line
from dreamkeep.agents.shared.values import table, text
from dreamkeep.host import Host

AGENT = "codex"

_NAME = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(?P<thread>[0-9A-Za-z-]+)(?:_[0-9A-Za-z-]+)?\.jsonl(?P<cold>\.zst)?")
_NAMES = "session_index.jsonl"
_THREAD = re.compile(r"[0-9A-Za-z-]{1,100}")
_NUMBER = re.compile(r"\d{2,4}")


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    found = [environment.get("CODEX_HOME", ""), os.path.join(home, ".codex")]
    return list(dict.fromkeys(place for place in found if place))


def discover(host: Host, place: str) -> Iterable[Source]:
    problems: list[OSError] = []
    yield from _below(host, os.path.join(place, "sessions"), 3, problems)
    yield from _below(host, os.path.join(place, "archived_sessions"), 0, problems)
    yield from _names(host, place)  # after the sessions that it names
    if problems:
        raise problems[0]  # after all that can be read


def _below(host: Host, folder: str, deep: int, problems: list[OSError]) -> Iterable[Source]:
    try:
        names = sorted(host.names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as problem:
        problems.append(problem)
        return
    there = set(names)
    for name in names:
        path = os.path.join(folder, name)
        source = claims(path)
        if source and not (source.form == LINES_ZST and name.removesuffix(".zst") in there):
            yield source
        elif deep and _NUMBER.fullmatch(name):
            yield from _below(host, path, deep - 1, problems)


def _names(host: Host, place: str) -> Iterable[Source]:
    path = os.path.join(place, _NAMES)
    at = host.stat(path)
    return [Source(AGENT, path, SHARED, role=NAMES)] if at and not at.is_folder else []


def beside(host: Host, source: Source) -> Iterable[Source]:
    """The file with the names, in the folder that holds `sessions` or `archived_sessions`."""
    place = os.path.dirname(source.path)
    while os.path.basename(place) not in ("sessions", "archived_sessions"):
        above = os.path.dirname(place)
        if above == place:
            return []
        place = above
    return _names(host, os.path.dirname(place))


def owner(line: bytes) -> str:
    try:
        thread = json.loads(line)["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return thread if isinstance(thread, str) and _THREAD.fullmatch(thread) else ""


def claims(path: str) -> Source | None:
    if os.path.basename(path) == _NAMES:
        return Source(AGENT, path, SHARED, role=NAMES)
    found = _NAME.fullmatch(os.path.basename(path))
    return Source(AGENT, path, LINES_ZST if found["cold"] else LINES, found["thread"]) if found else None


def identify(path: str, head: bytes) -> str:
    found = claims(path)
    if found and found.session:
        return found.session
    first = first_line(head)
    return text(table(first.get("payload")).get("id")) if first.get("type") == "session_meta" else ""
