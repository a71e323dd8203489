"""What an agent's folder offers, as types. CONTRACT.md says how to write one.

    __init__.py     AGENT: what is known of it at a glance (`Agent`)
    discovery.py    where its sessions are (`Discovery`; `Neighbours`, `Sharing`, `Keeper` where it has more)
    reader.py       raw records → facts (`Reader`)
    writer.py       a talk → its own bytes (`Writer`)
    row_habits.py   when rows that are gone from its database were meant to go (`shared/row_habits.py`)
    setup.py        hooks and the MCP server into its settings (`capture/setup/offer.py`)
    recovery.py     its own stores, looked at and mended (`recovery/stores.py`)

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


#: In a command: the native id of the session.
SESSION = "{session}"
#: In a command: the title by which a session of our own requests is known again.
OWN_TITLE = "{title}"
#: For programs that want the question at their end, where the request itself comes on standard input.
ANSWER_NOW = "Answer the request above. Give the JSON object only."


class Agent(NamedTuple):
    """What is known of an agent before any of its modules is imported. All but the first three may be left out."""

    #: As users type it, and as it stands before the colon of a session's id: lower case letters, digits, `-`, `_`.
    name: str
    #: As its makers write it.
    title: str
    #: The package that its modules lie in: `__name__` of the folder's `__init__.py`.
    package: str

    # -- modules of that package; "" for one that it does not have
    discovery: str = "discovery"
    reader: str = "reader"
    writer: str = ""
    row_habits: str = ""
    setup: str = ""
    recovery: str = ""
    #: Which module has `chain_ids` and `BOUNDARY`, for an agent whose forks begin with a copy of another session's records.
    forks: str = ""

    # -- what its discovery has besides
    #: Files beside transcripts: `beside`.
    has_files_beside: bool = False
    #: A file whose lines belong to many sessions: `owner`.
    has_shared_files: bool = False
    #: A list of its own that tells the folder of a session: `folder`.
    has_folder_list: bool = False

    # -- how its channels differ
    #: What its names over ACP hold, if its ACP session ids are those of its own store: then a tap knows it.
    acp_names: tuple[str, ...] = ()
    #: It makes up another tool id each time that it tells of a call over ACP.
    renews_acp_ids: bool = False
    #: Its tools have one id (or also one name) in its protocol or hooks and another in its store.
    unlike_tool_ids: bool = False
    unlike_tool_names: bool = False

    # -- its commands and places
    #: Variables by which it looks elsewhere than in the user's home.
    home_variables: tuple[str, ...] = ()
    #: Folders (or a file) by which its own place is known when it was somewhere else than in a home.
    anchors: tuple[str, ...] = ()
    #: The words that resume a session, with `SESSION` for its id.
    resume_command: tuple[str, ...] = ()
    #: The words that ask its model one question, without tools, hooks and a session of its own: for dreams.
    ask_command: tuple[str, ...] = ()

    # -- recovery
    #: Its `recovery` puts rows back into its database (`RowStore`).
    restores_rows: bool = False
    #: Roles of sources in its own places that its `recovery` looks at itself (`OwnStore`).
    own_audit: frozenset[str] = frozenset()
    #: The agent whose `recovery` knows which of these sessions the user deleted there.
    deleted_by: str = ""
    #: Members of its documents that change when the user meant to have less in it.
    shrink_marks: tuple[str, ...] = ()


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


class FolderList(Discovery, Protocol):
    """An agent that notes elsewhere than in a session where it runs."""

    def folder(self, host: Host, path: str) -> str:
        """The folder in which the session in this file runs; "" when that is not told."""


class Reader(Protocol):
    """What the class `Reader` of `reader.py` offers: raw records → facts. Pure: no disk, no clock.

    A reader is made with its state (a dict of JSON data, {} at first), reads one record after another, and keeps in `state` what
    it must remember, so that reading may stop anywhere and go on later, in another process, with the same result. The state stays
    small: it must not grow with the session (the fold itself knows which keys were said already). A reader never raises on any
    input: what it does not understand is `UnknownRecord`, what is broken is `OddRecord`.
    """

    state: dict[str, Any]

    def read(self, record: Record) -> Iterable[Fact]: ...


class ForkedRecords(Protocol):
    """An agent whose forks begin with a copy of their parent's records, and no word about where they come from."""

    #: Stands in the record with which a fork of a compacted session begins.
    BOUNDARY: bytes

    def chain_ids(self, lines: Iterable[bytes]) -> Iterable[tuple[str, str | None]]:
        """(id, time) of each line that has them, in the order of the file."""
