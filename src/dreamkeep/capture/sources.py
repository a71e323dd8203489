"""What discovery finds: a source is a file or database in which an agent keeps sessions. Knows names, opens nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from dreamkeep.host import Host
from dreamkeep.session.formats import READERS
from dreamkeep.session.formats.common import table

#: How a source is read: lines that are appended; a JSON document that is rewritten whole; the rows of an SQLite file;
#: lines in a zstd-compressed file; a text that is no records; lines of which each belongs to some session.
LINES, DOCUMENT, ROWS, LINES_ZST, TEXT, SHARED = "lines", "document", "rows", "lines.zst", "text", "shared"
#: Forms in which one file holds many sessions.
MANY = frozenset((ROWS, SHARED))

#: Roles of what lies beside a transcript: a tool's whole output, what a subagent is, how a workflow went, names, the folder.
#: None of it opens a session: it is captured once its session is here.
RESULT, META, WORKFLOW, NAMES, WORKSPACE = "result", "meta", "workflow", "names", "workspace"
BESIDE = frozenset((RESULT, META, WORKFLOW, NAMES, WORKSPACE))


class Source(NamedTuple):
    """`session`: the native id of the session it belongs to; "" when only its head can tell (`identify`), or when it holds many.

    `role`: which of a session's sources it is, e.g. "main", "subagent", "turns", "backup", or one of `BESIDE`. `parent`: of a
    subagent, whose. `name`: by what its journal knows it, where that is not to be found out from its path.
    """

    agent: str
    path: str
    form: str = LINES
    session: str = ""
    role: str = "main"
    parent: str = ""
    name: str = ""


class Discovery(Protocol):
    """What a module of `capture/agents/` offers. All of it may be asked at any time, so it must be cheap."""

    AGENT: str

    def homes(self, home: str, environment: Mapping[str, str]) -> list[str]:
        """Folders (or files) where this agent may keep its sessions, most specific first; they need not exist.

        `environment` is empty when the user named a home.
        """

    def discover(self, host: Host, place: str) -> Iterable[Source]:
        """All sources below one of `homes`. A folder that is not there or can't be read yields nothing or raises OSError."""

    def claims(self, path: str) -> Source | None:
        """Whether a path that the user named is a source of this agent, by its name alone."""

    def identify(self, path: str, head: bytes) -> str:
        """The session's native id by the beginning of the file (up to 64 KiB); "" when it does not tell."""


#: Every agent that keeps sessions on disk: its module in capture/agents/, of the same name as its reader's.
AGENTS = READERS


def discovery(agent: str) -> Discovery:
    found: Discovery = import_module(f"dreamkeep.capture.agents.{AGENTS[agent]}")
    return found


class Neighbours(Discovery, Protocol):
    """An agent that writes more than transcripts."""

    def beside(self, host: Host, source: Source) -> Iterable[Source]:
        """What lies beside this transcript and belongs to its session."""


class Sharing(Discovery, Protocol):
    """An agent with a file whose lines belong to many sessions."""

    def owner(self, line: bytes) -> str:
        """The native id of the session that a line is about; "" when it says of none."""


_NEIGHBOURS = frozenset(("claude", "codex", "copilot"))
_SHARING = frozenset(("codex",))


def beside(host: Host, source: Source) -> list[Source]:
    if source.agent not in _NEIGHBOURS or source.role in BESIDE:
        return []
    found: Neighbours = import_module(f"dreamkeep.capture.agents.{AGENTS[source.agent]}")
    return list(found.beside(host, source))


def sharing(agent: str) -> Sharing | None:
    if agent not in _SHARING:
        return None
    found: Sharing = import_module(f"dreamkeep.capture.agents.{AGENTS[agent]}")
    return found


def databases(host: Host, agent: str, place: str, below: Callable[[], Iterable[str]]) -> Iterator[Source]:
    """The place itself, if it is a file; else those of the files `below` it that are there."""
    at = host.stat(place)
    if at is None:
        return
    for path in below() if at.is_folder else [place]:
        found = host.stat(path)
        if found is not None and not found.is_folder:
            yield Source(agent, path, ROWS)


def claimed(inside: Iterable[tuple[str, bool]], claims: Callable[[str], Source | None]) -> Iterator[Source]:
    """The files of `inside` that are sources, by their names."""
    for path, is_folder in inside:
        found = None if is_folder else claims(path)
        if found:
            yield found


def first_line(head: bytes) -> Mapping[str, Any]:
    """A file's first line as JSON; empty when it is no object, or cut off."""
    try:
        return table(json.loads(head.partition(b"\n")[0]))
    except (ValueError, RecursionError):
        return {}


def inside(host: Host, folder: str, problems: list[OSError]) -> list[tuple[str, bool]]:
    """(path, whether it is a folder) of what lies in a folder: nothing where none is; one that can't be read is a problem."""
    try:
        return [(f"{folder}/{entry.name}", entry.at.is_folder) for entry in host.entries(folder) if entry.at]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        problems.append(problem)
        return []
