"""What an agent's folder offers, as types. CONTRACT.md says how to write one.

A source is a file or database in which an agent keeps sessions: discovery finds it, and a reader makes facts of its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from dreamkeep.agents.facts import Fact, Record
from dreamkeep.host import Host

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
    """What `discovery.py` offers. All of it may be asked at any time, so it must be cheap."""

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


class Neighbours(Discovery, Protocol):
    """An agent that writes more than transcripts."""

    def beside(self, host: Host, source: Source) -> Iterable[Source]:
        """What lies beside this transcript and belongs to its session."""


class Sharing(Discovery, Protocol):
    """An agent with a file whose lines belong to many sessions."""

    def owner(self, line: bytes) -> str:
        """The native id of the session that a line is about; "" when it says of none."""


class Reader(Protocol):
    """What the class `Reader` of `reader.py` offers: raw records → facts. Pure: no disk, no clock.

    A reader is made with its state (a dict of JSON data, {} at first), reads one record after another, and keeps in `state` what
    it must remember, so that reading may stop anywhere and go on later, in another process, with the same result. The state stays
    small: it must not grow with the session (the fold itself knows which keys were said already). A reader never raises on any
    input: what it does not understand is `Unknown`, what is broken is `Odd`.
    """

    state: dict[str, Any]

    def read(self, record: Record) -> Iterable[Fact]: ...
