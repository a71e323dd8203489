"""One of Hermes WebUI's session folders: its files, and every copy of a session that can be found. Never writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dreamkeep.agents.hermes_webui import discovery as agent
from dreamkeep.agents.hermes_webui.recovery import documents
from dreamkeep.agents.hermes_webui.recovery import rows as webui_rows
from dreamkeep.capture import find
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import PlainFile, iter_blocks
from dreamkeep.errors import DreamkeepError
from dreamkeep.host import Host, Stat
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery.isolate import TROUBLE
from dreamkeep.recovery.repair.movable import in_the_way

INDEX = "_index.json"
DELETED = "_deleted_webui_sessions.json"
PRUNED = "_pruned_webui_orphans.json"
STRANGE = TROUBLE


def places(host: Host, home: str, environment: Mapping[str, str], captured: Iterable[str]) -> list[str]:
    """Folders that exist, and those that no longer do, if one of the captured files was in them."""
    was = {os.path.dirname(path) for path in captured}
    known = find.places(agent.AGENT, home, environment)
    return [place for place in known if place in was or _may_be_folder(host, place)]


def _may_be_folder(host: Host, place: str) -> bool:
    try:
        at = host.stat(place)
    except OSError:
        return True  # something is there; what is wrong with it is reported when it is read
    return at is not None and at.is_folder


class Folder:
    """A folder as it is now. `deleted`: None when its tombstones can't be read, or are gone with the folder (`is_here` is
    False)."""

    def __init__(self, host: Host, root: str, place: str) -> None:
        self.host = host
        self.root = root
        self.place = place
        self.lives: dict[str, Stat] = {}
        self.backups: dict[str, Stat] = {}
        self.journals: dict[str, list[str]] = {}
        glance = find.Glance(host)
        tree = find.AgentTree(glance, agent.AGENT, place)
        #: What in it can't be read.
        self.troubles = tree.troubles
        for source in agent.discover(tree, place):
            if source.role == "run":
                break
            if source.role == "turns":
                self.journals.setdefault(source.session, []).append(source.path)
            else:
                kind = self.lives if source.role == "main" else self.backups
                kind[source.session] = glance.seen[source.path]
        at = host.stat(place)
        self.is_here = at is not None and at.is_folder
        self.deleted = self._ids(DELETED) if self.is_here else None
        self.pruned = self._ids(PRUNED) or frozenset()

    def live(self, sid: str) -> str:
        return f"{self.place}/{sid}.json"

    def why_no_file(self, sid: str) -> str:
        """Why no session file can be made under this id; "" when it can."""
        if not agent.names_a_file(sid):
            return "Its id is not a valid file name, so no session file is made for it. Fix that row or file by hand."
        at = self.host.stat(self.live(sid))
        if at is not None and not at.is_file:
            return f"`{self.live(sid)}` is a folder or not a regular file. Move it away by hand."
        return in_the_way(self.host, self.live(sid))

    def backup(self, sid: str) -> str:
        return f"{self.place}/{sid}.json.bak"

    def session(self, sid: str) -> str:
        return f"{agent.AGENT}:{sid}"

    def read(self, path: str) -> bytes:
        content = PlainFile(self.host, path)
        try:
            return b"".join(iter_blocks(content))
        finally:
            content.close()

    def document(self, path: str) -> documents.Document | None:
        return documents.parse_document(self.read(path))

    def entries(self) -> list[object] | None:
        """The entries of the index; None when it is no list. FileNotFoundError when there is none."""
        return documents.parse_index(self.read(f"{self.place}/{INDEX}"))

    def turns(self, sid: str) -> list[documents.WebuiTurn]:
        return documents.fold_turns(line for path in self.journals.get(sid, ()) for line in self.read(path).split(b"\n"))

    def _ids(self, name: str) -> frozenset[str] | None:
        path = f"{self.place}/{name}"
        try:
            return frozenset() if self.host.stat(path) is None else documents.parse_tombstones(self.read(path))
        except OSError:
            return None

    # -- our own copies

    def versions(self, sid: str, *, masked: bool = True) -> Iterator[bytes]:
        """Every captured version of the session file, the oldest first. `masked`: also those in which secrets were masked."""
        folder = f"{self.root}/{folder_of(self.session(sid))}"
        if self.host.stat(folder) is None:
            return
        for name in source_bytes.names_of(self.host, "main", self.live(sid)):
            is_known = False
            cursors = source_bytes.words(self.host, folder, (name,))[name]
            for number, pieces in source_bytes.generations(self.host, folder, name):
                is_known = True
                if masked or number not in cursors or cursors[number].masked_crc is None:
                    yield b"".join(pieces)
            if is_known:
                return


class SessionCopy(NamedTuple):
    """`origin`: backup, journal, database. `raw`: its bytes, when they may be restored as they are."""

    origin: str
    document: documents.Document
    raw: bytes | None


def copies(folder: Folder, sid: str, databases: Sequence[str]) -> list[SessionCopy]:
    """Every good copy of a session besides its file: the newest first. The database, which says it in other words, comes last."""
    found: dict[str, SessionCopy] = {}
    for origin, data in _read_copies(folder, sid):
        document = documents.parse_document(data)
        if document is not None:
            found[origin] = SessionCopy(origin, document, data)
    files = sorted(found.values(), key=lambda copy: -documents.updated_at(copy.document))
    return files + [SessionCopy("database", one.document, None) for one in _read_useful_sessions(folder, sid, databases)]


def _read_copies(folder: Folder, sid: str) -> Iterator[tuple[str, bytes]]:
    if folder.host.stat(folder.backup(sid)) is not None:
        try:
            yield "backup", folder.read(folder.backup(sid))
        except OSError:
            pass  # it is no copy then, and another fault reports it
    try:
        # A masked version is no copy: in the agent's file the masks would look like what was said.
        for data in folder.versions(sid, masked=False):
            yield "journal", data
    except STRANGE:
        pass  # another fault reports a journal that can't be read


def _read_useful_sessions(folder: Folder, sid: str, databases: Sequence[str]) -> list[webui_rows.DatabaseSession]:
    """Those with a message or a worktree."""
    sessions = _read_database_sessions(folder, sid, databases)
    return [one for one in sessions if one.document["messages"] or one.document["worktree_path"]]


def _read_database_sessions(folder: Folder, sid: str, databases: Sequence[str]) -> Iterator[webui_rows.DatabaseSession]:
    for path in databases:
        try:
            session = webui_rows.read_database_session(folder.host, path, sid)
        except (OSError, DreamkeepError):
            continue  # another fault reports it
        if session:
            yield session


def read_row_messages(folder: Folder, sid: str, databases: Sequence[str]) -> documents.WebuiMessages:
    """The messages of all rows of a session, even if the user took back everything."""
    found = [one.messages for one in _read_database_sessions(folder, sid, databases)]
    return documents.WebuiMessages([row for one in found for row in one.rewound], [row for one in found for row in one.others])


def rebuild_document(folder: Folder, sid: str, databases: Sequence[str]) -> bytes | None:
    """A session whose file is gone or unreadable, from all its copies: the newest, with what was lost and another copy has.

    An older backup doesn't bring back what the user took back, as the database says. None when there is no copy.
    """
    found = copies(folder, sid, databases)
    if not found:
        return None
    base = found[0]
    result = documents.merge_documents(base.document, (copy.document for copy in found[1:] if copy.origin != "database"))
    if base.origin != "database":
        for session in _read_useful_sessions(folder, sid, databases):
            more = documents.later_messages(result, session.document)
            if more:
                result = documents.with_messages(result, [*documents.messages_of(result), *more])
        result = documents.without_rewound(result, read_row_messages(folder, sid, databases))
    return base.raw if base.raw is not None and result == base.document else documents.encode(result)
