"""Delete a session: first its tombstone, then every place that has a word of it. The next writer finishes what a crash
interrupts.

An intent file comes before the tombstone. So unfinished work is found by one listing, and it is known which pages may have
lines of the session when its journal can no longer tell. Without a tombstone an intent means nothing.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from dreamkeep.capture import forget
from dreamkeep.errors import Busy, DreamkeepError
from dreamkeep.event import Kind
from dreamkeep.host import Host, Stat, exclusive_lock, make_folders, read_file, remove_tree, replace_file
from dreamkeep.journal import parts, witness
from dreamkeep.journal.places import DELETIONS, EXCHANGE, folder_of
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.repair.movable import is_link
from dreamkeep.recovery.snapshot import staging

INTENTS = DELETIONS
LOCK = "state/delete.lock"
_WAIT_S = 60.0
ASIDE = "aside"
#: What a repair did, in names and digests; the bytes that it kept are beside it.
_LEDGER = "undo.json"
#: A name made from a session's id (`places.folder_of`): a file of another session stays, whatever it says about this one.
_OF_A_SESSION = re.compile(r"[a-z0-9_-]*-[0-9a-f]{16}\.")


#: Takes sessions (by their journals' names) out of the index, and out of pages (relative to the keep; None: any may have them).
Forget = Callable[[Collection[str], "Collection[str] | None"], None]


class Intent(NamedTuple):
    """`session`: "" if it can't be read. `pages`: those that may have lines of it, relative to the keep; None: any may."""

    session: str
    pages: frozenset[str] | None = None

    @classmethod
    def of(cls, data: bytes) -> Intent:
        """Damaged bytes name no session, so they mean nothing."""
        try:
            session, _, pages_json = data.decode().partition("\n")
        except ValueError:
            return cls("")
        try:
            pages = json.loads(pages_json)  # older versions wrote none
        except (ValueError, RecursionError):
            return cls(session)
        return cls(session, frozenset(map(str, pages)) if isinstance(pages, list) else None)

    def encode(self) -> bytes:
        pages = "" if self.pages is None else f"\n{json.dumps(sorted(self.pages))}\n"
        return f"{self.session}{pages}".encode()


class Deleting:
    """`forget`: given by the caller, because the index may be missing or need a rebuild."""

    def __init__(self, host: Host, root: str, journals: JournalWriters, forget: Forget) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._forget = forget

    def delete(self, *sessions: str) -> None:
        """Each session has its own intent and tombstone, so that after a crash each is finished by itself."""
        folder = f"{self._root}/{INTENTS}"
        make_folders(self._host, folder)
        with self._lock(wait_s=_WAIT_S):
            intents = [self._intent(session) for session in sessions]
            for intent in intents:
                replace_file(self._host, f"{folder}/{os.path.basename(folder_of(intent.session))}", intent.encode())
            for session in sessions:
                self._say(Kind.SESSION_DELETED, session)
            self._finish(*intents)

    def _intent(self, session: str) -> Intent:
        """Includes the pages that an earlier attempt knew: it may have erased what they were known by."""
        from dreamkeep.recovery.delete.pages import pages_with  # not needed by those who only finish a deletion

        path = f"{self._root}/{INTENTS}/{os.path.basename(folder_of(session))}"
        before = Intent.of(read_file(self._host, path)) if self._host.stat(path) is not None else Intent(session, frozenset())
        if before.pages is None:
            return Intent(session)
        return Intent(session, pages_with(self._host, self._root, session) | before.pages)

    def undelete(self, session: str) -> None:
        make_folders(self._host, f"{self._root}/{INTENTS}")
        with self._lock(wait_s=_WAIT_S):
            for waiting, problem in self._finish_each(f"{self._root}/{INTENTS}"):
                if waiting == session:  # the deletion of another one doesn't matter here
                    raise problem
            self._say(Kind.SESSION_UNDELETED, session)

    def finish_all(self) -> None:
        """Finish what a crash interrupted. A process that is deleting right now does that itself."""
        folder = f"{self._root}/{INTENTS}"
        if self._host.stat(folder) is None or not self._host.names(folder):
            return
        try:
            with self._lock(wait_s=0):
                for _, problem in self._finish_each(folder):
                    raise problem
        except Busy:
            pass  # its holder is at work

    def _finish_each(self, folder: str) -> list[tuple[str, Exception]]:
        """Sessions whose deletion could not be finished, and why."""
        dead = Tombstones(self._host, self._root)
        problems: list[tuple[str, Exception]] = []
        for name in self._host.names(folder):
            intent = Intent("")
            try:
                if not name.endswith(".tmp"):
                    intent = Intent.of(read_file(self._host, f"{folder}/{name}"))
                if intent.session and dead.has(intent.session):
                    self._finish(intent)
                else:
                    self._host.remove(f"{folder}/{name}")
            except (DreamkeepError, OSError) as problem:
                # A deletion that waits for a page to be mended must not hold up the others.
                problems.append((intent.session, problem))
        return problems

    def _lock(self, wait_s: float) -> AbstractContextManager[None]:
        return exclusive_lock(self._host, f"{self._root}/{LOCK}", wait_s=wait_s)

    def _say(self, kind: str, session: str) -> None:
        self._journals.say("", kind, {"session": session})

    def _finish(self, *intents: Intent) -> None:
        """What only the journal knows is used before the journal goes, so that a crash in between loses no trail. Index and pages
        are updated once for all sessions."""
        for session in (intent.session for intent in intents):
            folder = f"{self._root}/{folder_of(session)}"
            forget_outside(self._host, self._root, self._journals, session, forget.connections(self._host, folder))
            if self._host.stat(folder) is not None:
                self._journals.writer(session).remove()
        self._sweep_imports()
        names = [folder_of(intent.session) for intent in intents]
        witness.forget(self._host, self._root, names)
        known = [intent.pages for intent in intents if intent.pages is not None]
        self._forget(names, frozenset().union(*known) if len(known) == len(intents) else None)
        for name in names:
            self._host.remove(f"{self._root}/{INTENTS}/{os.path.basename(name)}")

    def _sweep_imports(self) -> None:
        try:
            with staging.lock_staging(self._host, self._root, wait_s=0):
                staging.sweep(self._host, self._root)
        except Busy:
            pass  # a running import takes in nothing of this session, and clears up by itself


def half_deleted(host: Host, root: str, text: str) -> list[str]:
    """Deleted sessions with that id (or else native id) of which something is still here, after a crash or put back by
    somebody."""
    dead = sorted(Tombstones(host, root).all())
    named = [id for id in dead if id == text] or [id for id in dead if id.partition(":")[2] == text]
    return [id for id in named if _is_here(host, root, folder_of(id))]


def _is_here(host: Host, root: str, name: str) -> bool:
    return any(host.stat(place) is not None for place in (f"{root}/{name}", f"{root}/{INTENTS}/{os.path.basename(name)}"))


def forget_outside(host: Host, root: str, journals: JournalWriters, session: str, taps: Collection[str]) -> None:
    """Clear every place besides its journal and the index that may have a word of it. `taps`: the taps that saw it."""
    forget.forget_spooled(host, root, session)
    forget.erase_in_keep(host, root, journals, session, taps)
    # Requests about other sessions may show notes from this one; what is still needed is asked again.
    remove_tree(host, f"{root}/{EXCHANGE}")
    _remove_view_copies(host, root)
    _remove_aside(host, f"{root}/{ASIDE}", session, forget.marks_of(session, taps))


def _remove_view_copies(host: Host, root: str) -> None:
    """Remove old copies of the index and of pages from repairs' ledgers. They have words of all sessions and don't say whose.
    They are views, so nobody needs an old one back."""
    from dreamkeep.index.open import FILE  # not needed by those who only finish a deletion
    from dreamkeep.recovery.repair import ledger

    for repair in ledger.repair_ids(host, root):
        try:
            noted = ledger.read_notes(host, root, repair)
        except ValueError:
            continue  # torn, or not ours: its files are searched like everything else
        ours = [note["before"] for note in noted if note.get("before") and _is_view(note, f"{root}/{FILE}")]
        for path in (f"{root}/{ASIDE}/{ledger.PREFIX}{repair}/{before['kept']}" for before in ours):
            if host.stat(path) is not None:
                host.remove(path)


def _is_view(note: Mapping[str, Any], index: str) -> bool:
    return str(note.get("file")).startswith(index) or ("file" in note and str(note.get("fault")).startswith("page_"))


def _remove_aside(host: Host, folder: str, session: str, marks: Collection[bytes]) -> None:
    """Remove what was set aside of its journal, and files of no session that have something of it; also in repairs' ledgers."""
    if host.stat(folder) is None:
        return
    for name in host.names(folder):
        path = f"{folder}/{name}"
        at = _stat_own(host, path)
        if at and at.is_folder:
            _remove_aside(host, path, session, marks)
        elif at and name != _LEDGER and (_is_of(name, session) or (not _OF_A_SESSION.match(name) and _holds(host, path, marks))):
            host.remove(path)
    host.sync_folder(folder)


def _stat_own(host: Host, path: str) -> Stat | None:
    """None for what is not the keep's (a link), and for what holds no words (a pipe, a device)."""
    try:
        at = host.stat(path)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return None
        raise
    return at if at and (at.is_file or at.is_folder) and not is_link(host, path) else None


def _is_of(name: str, session: str) -> bool:
    return name.startswith(f"{os.path.basename(folder_of(session))}.")


def _holds(host: Host, path: str, marks: Collection[bytes]) -> bool:
    """Whether a file has one of the marks. Read in overlapping blocks; a copy of a cold part is decompressed."""
    longest = max(map(len, marks), default=1)
    window = b""
    with host.open_stream(path) as plain:
        for block in parts.thawed_blocks(plain):
            window += block
            if any(mark in window for mark in marks):
                return True
            window = window[-longest:]
    return False
