"""What an agent's folder offers, as types. CONTRACT.md says how to write one.

__init__.py     AGENT: the facts about it (`Agent`)
discovery.py    where its sessions are (`Discovery`; where it has more: `Neighbours`, `Sharing`, `FolderList`, `Keeper`)
reader.py       raw records → facts (`Reader`)
writer.py       a talk → its own bytes (`TalkWriter` in shared/talk.py)
row_habits.py   which rows the agent removes from its database on purpose (`RowHabits` in shared/row_habits.py)
setup.py        its settings: hooks and the MCP server (`Setup` in capture/setup/offer.py)
recovery.py     its own stores: audit and repair (recovery/stores.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from dreamkeep.agents.facts import Fact, Record
from dreamkeep.host import Host

#: How a source is read: lines that are appended; a JSON document that is rewritten whole; the rows of an SQLite file;
#: lines in a zstd-compressed file; text without records; lines that belong to different sessions.
LINES, DOCUMENT, ROWS, LINES_ZST, TEXT, SHARED = "lines", "document", "rows", "lines.zst", "text", "shared"
#: Forms in which one file holds many sessions.
MANY = frozenset((ROWS, SHARED))

#: Roles of files beside a transcript: a tool's whole output, what a subagent is, how a workflow went, names, the folder.
#: Such a file opens no session. It is captured when its session is known.
RESULT, META, WORKFLOW, NAMES, WORKSPACE = "result", "meta", "workflow", "names", "workspace"
BESIDE = frozenset((RESULT, META, WORKFLOW, NAMES, WORKSPACE))

#: In a command: the agent's own id of the session.
SESSION = "{session}"
#: In a command: the title that marks a session as one of our own requests.
OWN_TITLE = "{title}"
#: In `memory_folder`: a project's folder, with `-` for every character that is no letter or digit.
FOLDER = "{folder}"
#: For programs that want the question as their last argument, though the request itself comes on standard input.
ANSWER_NOW = "Answer the request above. Give the JSON object only."


class Agent(NamedTuple):
    """Facts about an agent, known before any of its modules is imported. Only the first three are required."""

    #: What users type, and what stands before the colon of a session's id: lower-case letters, digits, `-`, `_`.
    name: str
    #: As its makers write it.
    title: str
    #: The package with its modules: `__name__` of the folder's `__init__.py`.
    package: str

    # -- modules of that package; "" for one that it does not have
    discovery: str = "discovery"
    reader: str = "reader"
    writer: str = ""
    row_habits: str = ""
    setup: str = ""
    recovery: str = ""
    #: The module with `chain_ids` and `BOUNDARY` (`ForkedRecords`), if forks begin with a copy of another session's records.
    forks: str = ""

    # -- what its discovery offers besides
    #: `beside`: files beside transcripts.
    has_files_beside: bool = False
    #: `owner`: a file whose lines belong to different sessions.
    has_shared_files: bool = False
    #: `folder`: a list of its own that says in which folder a session runs.
    has_folder_list: bool = False

    # -- how its channels differ
    #: Parts of its name over ACP, if its ACP session ids are those of its own store. The tap recognises it by them.
    acp_names: tuple[str, ...] = ()
    #: It gives a call another tool id each time it reports that call over ACP.
    renews_acp_ids: bool = False
    #: Its tools have one id in its protocol or hooks and another in its store; the same for their names.
    unlike_tool_ids: bool = False
    unlike_tool_names: bool = False

    # -- its commands and places
    #: Environment variables that move its files out of the user's home.
    home_variables: tuple[str, ...] = ()
    #: Folders (or a file) in its paths; the part before them is its place, wherever that was.
    anchors: tuple[str, ...] = ()
    #: The command that resumes a session, with `SESSION` for its id.
    resume_command: tuple[str, ...] = ()
    #: The command that asks its model one question, without tools, hooks or a session of its own: for dreams.
    ask_command: tuple[str, ...] = ()

    # -- what users and the agent itself write down; dreams do not learn it again
    #: Names of files with instructions, in a project's folders.
    instruction_files: tuple[str, ...] = ()
    #: The file with instructions for all projects, below the user's home.
    home_instruction_file: str = ""
    #: The folder with the agent's own memories of a project, below the user's home, with `FOLDER` for the project's folder.
    memory_folder: str = ""

    #: What its tools do, by kind (`shell`, `edit`, `plan`, `ask`, `todo`, `task_new`, `task_change`). Names in lower case.
    tools: Mapping[str, tuple[str, ...]] = {}

    # -- recovery
    #: Its `recovery` puts rows back into its database (`RowStore`).
    restores_rows: bool = False
    #: Roles of sources in its own places that its `recovery` audits itself (`OwnStore`).
    own_audit: frozenset[str] = frozenset()
    #: The agent whose `recovery` knows which of these sessions the user deleted there.
    deleted_by: str = ""
    #: Members of its documents that change when the user removed something on purpose.
    shrink_marks: tuple[str, ...] = ()


class Source(NamedTuple):
    """A file or database in which an agent keeps sessions. Discovery finds it; a reader turns its records into facts.

    `session`: the agent's own id of the session; "" when only the file's beginning shows it (`identify`), or when it holds many.
    `role`: which of a session's sources it is: "main", "subagent", "turns", "backup", or one of `BESIDE`. `parent`: of a
    subagent, the session that started it. `name`: its name in the journal, where the path does not give that.
    """

    agent: str
    path: str
    form: str = LINES
    session: str = ""
    role: str = "main"
    parent: str = ""
    name: str = ""


class Discovery(Protocol):
    """What `discovery.py` offers. Any of it may be called at any time, so it must be cheap."""

    AGENT: str

    def homes(self, home: str, environment: Mapping[str, str]) -> list[str]:
        """Folders (or files) where this agent may keep its sessions, most specific first; they need not exist.

        `environment` is empty when the user named a home.
        """

    def discover(self, host: Host, place: str) -> Iterable[Source]:
        """All sources below one of `homes`. A missing folder yields nothing; one that can't be read raises OSError at the end."""

    def claims(self, path: str) -> Source | None:
        """The source at a path that the user named, if the name alone shows that it is this agent's."""

    def identify(self, path: str, head: bytes) -> str:
        """The session's id, from the beginning of the file (up to 64 KiB); "" when it does not show."""


class Neighbours(Discovery, Protocol):
    """An agent that writes more than transcripts."""

    def beside(self, host: Host, source: Source) -> Iterable[Source]:
        """The files beside this transcript that belong to its session."""


class Sharing(Discovery, Protocol):
    """An agent with a file whose lines belong to different sessions."""

    def owner(self, line: bytes) -> str:
        """The id of the session that a line belongs to; "" when it names none."""


class FolderList(Discovery, Protocol):
    """An agent that notes the folder of a session outside of the session."""

    def folder(self, host: Host, path: str) -> str:
        """The folder in which the session in this file runs; "" when it is unknown."""


class Reader(Protocol):
    """What the class `Reader` of `reader.py` offers: raw records → facts. Pure: no disk, no clock.

    A reader starts from its state (JSON data, {} at first), reads one record after another, and keeps in `state` what it must
    remember. So reading may stop anywhere and continue later, in another process, with the same result. The state must not grow
    with the session; the fold itself knows which keys came before. A reader never raises, whatever the input: what it does not
    understand is `UnknownRecord`, what is broken is `OddRecord`.
    """

    state: dict[str, Any]

    def read(self, record: Record) -> Iterable[Fact]: ...


class ForkedRecords(Protocol):
    """An agent whose forks begin with a copy of their parent's records, and do not say where it is from."""

    #: Stands in the record with which a fork of a compacted session begins.
    BOUNDARY: bytes

    def chain_ids(self, lines: Iterable[bytes]) -> Iterable[tuple[str, str | None]]:
        """(id, time) of each line that has them, in the order of the file."""
