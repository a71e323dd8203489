"""One of Hermes WebUI's session folders: which files are there, and every copy of a session that can be found. Never writes."""

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
    """Folders that are there, and those that are not, or are none any more, if one of these files was captured from them."""
    was = {os.path.dirname(path) for path in captured}
    known = find.places(agent.AGENT, home, environment)
    return [place for place in known if place in was or _may_be_folder(host, place)]


def _may_be_folder(host: Host, place: str) -> bool:
    try:
        at = host.stat(place)
    except OSError:
        return True  # something is there; what is wrong with it is told when it is looked through
    return at is not None and at.is_folder


class Folder:
    """As it is now. `deleted`: None when its tombstones can't be read, or went with the folder: `is_here` is False then."""

    def __init__(self, host: Host, root: str, place: str) -> None:
        self.host = host
        self.root = root
        self.place = place
        self.lives: dict[str, Stat] = {}
        self.backups: dict[str, Stat] = {}
        self.journals: dict[str, list[str]] = {}
        glance = find.Glance(host)
        tree = find.AgentTree(glance, agent.AGENT, place)
        #: What in it can't be looked at.
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
        """Why a session file can't be made, or made again, under this id; "" when it can."""
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
        return documents.document(self.read(path))

    def entries(self) -> list[object] | None:
        """Of the index; None when it is no list. FileNotFoundError when there is none."""
        return documents.listed(self.read(f"{self.place}/{INDEX}"))

    def turns(self, sid: str) -> list[documents.WebuiTurn]:
        return documents.turns(line for path in self.journals.get(sid, ()) for line in self.read(path).split(b"\n"))

    def _ids(self, name: str) -> frozenset[str] | None:
        path = f"{self.place}/{name}"
        try:
            return frozenset() if self.host.stat(path) is None else documents.ids_in(self.read(path))
        except OSError:
            return None

    # -- our own copies

    def versions(self, sid: str, *, masked: bool = True) -> Iterator[bytes]:
        """Every version of the session file that was captured, the oldest first. `masked`: also those in which secrets were."""
        folder = f"{self.root}/{folder_of(self.session(sid))}"
        if self.host.stat(folder) is None:
            return
        for name in source_bytes.names_of(self.host, "main", self.live(sid)):
            found = False
            words = source_bytes.words(self.host, folder, (name,))[name]
            for number, pieces in source_bytes.generations(self.host, folder, name):
                found = True
                if masked or number not in words or words[number].masked_crc is None:
                    yield b"".join(pieces)
            if found:
                return


class SessionCopy(NamedTuple):
    """`whence`: backup, journal, database. `raw`: its bytes, when they may be given back as they are."""

    whence: str
    document: documents.Document
    raw: bytes | None


def copies(folder: Folder, sid: str, databases: Sequence[str]) -> list[SessionCopy]:
    """Every good copy of a session besides its file: the newest first, and the database, which says it in other words, last."""
    found: list[SessionCopy] = []
    for whence, data in _texts(folder, sid):
        held = documents.document(data)
        if held is not None:
            found = [*(one for one in found if one.whence != whence), SessionCopy(whence, held, data)]
    found.sort(key=lambda one: -documents.updated_at(one.document))
    return found + [SessionCopy("database", kept.document, None) for kept in _kept(folder, sid, databases)]


def _texts(folder: Folder, sid: str) -> Iterator[tuple[str, bytes]]:
    if folder.host.stat(folder.backup(sid)) is not None:
        try:
            yield "backup", folder.read(folder.backup(sid))
        except OSError:
            pass  # can't be read: another fault tells that, and it is no copy
    try:
        # What was masked is no copy: in the agent's file it would be what was said.
        for data in folder.versions(sid, masked=False):
            yield "journal", data
    except STRANGE:
        pass  # a journal that can't be read: another fault tells that


def _kept(folder: Folder, sid: str, databases: Sequence[str]) -> Iterator[webui_rows.DatabaseSession]:
    for kept in _read_database_sessions(folder, sid, databases):
        if kept.document["messages"] or kept.document["worktree_path"]:
            yield kept


def _read_database_sessions(folder: Folder, sid: str, databases: Sequence[str]) -> Iterator[webui_rows.DatabaseSession]:
    for path in databases:
        try:
            kept = webui_rows.read_database_session(folder.host, path, sid)
        except (OSError, DreamkeepError):
            continue  # another fault tells that
        if kept:
            yield kept


def read_row_messages(folder: Folder, sid: str, databases: Sequence[str]) -> documents.WebuiMessages:
    """What all rows of a session tell, also of one in which everything was taken back."""
    found = [one.told for one in _read_database_sessions(folder, sid, databases)]
    return documents.WebuiMessages([row for one in found for row in one.rewound], [row for one in found for row in one.others])


def restored(folder: Folder, sid: str, databases: Sequence[str]) -> bytes | None:
    """A session whose file is gone or unreadable, of all its copies: the newest, with what the others have that was lost.

    What the user took back (the database tells) is not brought back by an older backup. None when there is no copy.
    """
    found = copies(folder, sid, databases)
    if not found:
        return None
    base = found[0]
    result = documents.merged(base.document, (one.document for one in found[1:] if one.whence != "database"))
    if base.whence != "database":
        for kept in _kept(folder, sid, databases):
            more = documents.later(result, kept.document)
            if more:
                result = documents.with_messages(result, [*documents.messages_of(result), *more])
        result = documents.without(result, read_row_messages(folder, sid, databases))
    return base.raw if base.raw is not None and result == base.document else documents.written(result)
