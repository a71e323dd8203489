"""Delete a session: tombstone first, then every place that holds a word of it. A crash anywhere is finished by the next writer.

An intent file comes before the tombstone so that unfinished work is found by one listing, and so that it is known which pages may
have lines of the session when the journal does not tell any more; by itself it means nothing.
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
#: Says what a repair did, in names and digests; the bytes that it kept lie beside it.
_LEDGER = "undo.json"
#: Named by the session it belongs to (`places.folder_of`): what another one's words say of this one stays.
_OF_A_SESSION = re.compile(r"[a-z0-9_-]*-[0-9a-f]{16}\.")


#: Of sessions by their journals' names, and pages relative to the keep that may have lines of them; None: any may.
Forget = Callable[[Collection[str], "Collection[str] | None"], None]


class Intent(NamedTuple):
    """`session`: "" where nobody can read it. `pages`: relative to the keep, those that may have lines of it; None: nobody knows,
    so any may."""

    session: str
    pages: frozenset[str] | None = None

    @classmethod
    def of(cls, data: bytes) -> Intent:
        """Of damaged bytes nothing is made: they name no session that was deleted, and by themselves they mean nothing."""
        try:
            session, _, told = data.decode().partition("\n")
        except ValueError:
            return cls("")
        try:
            pages = json.loads(told)  # an older version told none
        except (ValueError, RecursionError):
            return cls(session)
        return cls(session, frozenset(map(str, pages)) if isinstance(pages, list) else None)

    def packed(self) -> bytes:
        told = "" if self.pages is None else f"\n{json.dumps(sorted(self.pages))}\n"
        return f"{self.session}{told}".encode()


class Deleting:
    """`forget` takes sessions out of the index and the pages; the index may be rebuilt or not there, so it is the caller's to
    say how."""

    def __init__(self, host: Host, root: str, journals: JournalWriters, forget: Forget) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._forget = forget

    def delete(self, *sessions: str) -> None:
        """Each has its intent and its tombstone, so that what a crash left of several is finished one by one."""
        folder = f"{self._root}/{INTENTS}"
        make_folders(self._host, folder)
        with self._lock(wait_s=_WAIT_S):
            intents = [self._intent(session) for session in sessions]
            for intent in intents:
                replace_file(self._host, f"{folder}/{os.path.basename(folder_of(intent.session))}", intent.packed())
            for session in sessions:
                self._say(Kind.SESSION_DELETED, session)
            self._finish(*intents)

    def _intent(self, session: str) -> Intent:
        """With what an earlier try knew of pages: it has erased by what they were known, perhaps."""
        from dreamkeep.recovery.delete.pages import showing  # who only finishes an append needs none of it

        path = f"{self._root}/{INTENTS}/{os.path.basename(folder_of(session))}"
        before = Intent.of(read_file(self._host, path)) if self._host.stat(path) is not None else Intent(session, frozenset())
        if before.pages is None:
            return Intent(session)
        return Intent(session, showing(self._host, self._root, session) | before.pages)

    def undelete(self, session: str) -> None:
        make_folders(self._host, f"{self._root}/{INTENTS}")
        with self._lock(wait_s=_WAIT_S):
            # One that waits for its page is no reason to keep another from being given free.
            for _, problem in (one for one in self._finish_each(f"{self._root}/{INTENTS}") if one[0] == session):
                raise problem
            self._say(Kind.SESSION_UNDELETED, session)

    def finish_all(self) -> None:
        """What a crash left undone. Somebody who is deleting just now sees to it himself."""
        folder = f"{self._root}/{INTENTS}"
        if self._host.stat(folder) is None or not self._host.names(folder):
            return
        try:
            with self._lock(wait_s=0):
                for _, problem in self._finish_each(folder):
                    raise problem
        except Busy:
            pass  # he holds the lock because he is at work

    def _finish_each(self, folder: str) -> list[tuple[str, Exception]]:
        """Sessions whose deletion waits, and why."""
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
                # One that waits for a page to be mended must not keep another from being finished.
                problems.append((intent.session, problem))
        return problems

    def _lock(self, wait_s: float) -> AbstractContextManager[None]:
        return exclusive_lock(self._host, f"{self._root}/{LOCK}", wait_s=wait_s)

    def _say(self, kind: str, session: str) -> None:
        self._journals.say("", kind, {"session": session})

    def _finish(self, *intents: Intent) -> None:
        """What is known only from the journal comes before the journal: a crash in between must not lose the trail. Index and
        pages are made anew once for all of them."""
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
            pass  # an import is at work: it takes in nothing of this session, and clears up by itself


def half_deleted(host: Host, root: str, text: str) -> list[str]:
    """Sessions with that id, else with that native id, that were deleted and of which something is here: a crash left it, or
    somebody put it back."""
    dead = sorted(Tombstones(host, root).all())
    named = [one for one in dead if one == text] or [one for one in dead if one.partition(":")[2] == text]
    return [one for one in named if _is_here(host, root, folder_of(one))]


def _is_here(host: Host, root: str, name: str) -> bool:
    return any(host.stat(place) is not None for place in (f"{root}/{name}", f"{root}/{INTENTS}/{os.path.basename(name)}"))


def forget_outside(host: Host, root: str, journals: JournalWriters, session: str, taps: Collection[str]) -> None:
    """Every place that may hold a word of it, besides its journal and the index. `taps`: through which it was seen."""
    forget.forget_spooled(host, root, session)
    forget.erase_in_keep(host, root, journals, session, taps)
    # Requests about other sessions may show notes that came from this one; what is still wanted is asked again.
    remove_tree(host, f"{root}/{EXCHANGE}")
    _remove_view_copies(host, root)
    _remove_aside(host, f"{root}/{ASIDE}", session, forget.marks_of(session, taps))


def _remove_view_copies(host: Host, root: str) -> None:
    """An index has words of all sessions, and so has a page of notes, and neither says whose. They are views: nobody needs an old
    one back."""
    from dreamkeep.index.open import FILE  # whoever only finishes an append needs neither of these
    from dreamkeep.recovery.repair import ledger

    for repair in ledger.repair_ids(host, root):
        try:
            noted = ledger.read_notes(host, root, repair)
        except ValueError:
            continue  # torn, or not ours: what lies there is looked through like everything else
        ours = [note["before"] for note in noted if note.get("before") and _is_view(note, f"{root}/{FILE}")]
        for path in (f"{root}/{ASIDE}/{ledger.PREFIX}{repair}/{before['kept']}" for before in ours):
            if host.stat(path) is not None:
                host.remove(path)


def _is_view(note: Mapping[str, Any], index: str) -> bool:
    return str(note.get("file")).startswith(index) or ("file" in note and str(note.get("fault")).startswith("page_"))


def _remove_aside(host: Host, folder: str, session: str, marks: Collection[bytes]) -> None:
    """What was set aside of its journal; of what belongs to no session, whatever holds something of it; also in undo ledgers."""
    if host.stat(folder) is None:
        return
    for name in host.names(folder):
        path = f"{folder}/{name}"
        at = _own(host, path)
        if at and at.is_folder:
            _remove_aside(host, path, session, marks)
        elif at and name != _LEDGER and (_is_of(name, session) or (not _OF_A_SESSION.match(name) and _holds(host, path, marks))):
            host.remove(path)
    host.sync_folder(folder)


def _own(host: Host, path: str) -> Stat | None:
    """None for what is not the keep's: a link, wherever it leads, and what holds no words: a pipe, a device."""
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
    """Looked through in blocks that overlap; a copy of a cold part as what it holds."""
    longest = max(map(len, marks), default=1)
    held = b""
    with host.open_stream(path) as plain:
        for block in parts.thawed_blocks(plain):
            held += block
            if any(mark in held for mark in marks):
                return True
            held = held[-longest:]
    return False
