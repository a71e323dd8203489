"""Delete a session: tombstone first, then every place that holds a word of it. A crash anywhere is finished by the next writer.

An intent file comes before the tombstone only so that unfinished work is found by one listing; by itself it means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from dreamkeep.capture import forget
from dreamkeep.errors import Busy
from dreamkeep.event import Kind
from dreamkeep.host import Host, lock, make_folders, read_file, replace_file
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.pool import Journals
from dreamkeep.journal.tombs import Tombstones

INTENTS = "state/deleting"
LOCK = "state/delete.lock"
_WAIT_S = 60.0
ASIDE = "aside"
#: Says what a repair did, in names and digests; the bytes that it kept lie beside it.
_LEDGER = "undo.json"


class Deleting:
    """`forget` takes the session out of the index; the index may be rebuilt or not there, so it is the caller's to say how."""

    def __init__(self, host: Host, root: str, journals: Journals, forget: Callable[[str], None]) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._forget = forget

    def delete(self, session: str) -> None:
        folder = f"{self._root}/{INTENTS}"
        make_folders(self._host, folder)
        with self._alone(wait_s=_WAIT_S):
            replace_file(self._host, f"{folder}/{os.path.basename(folder_of(session))}", session.encode())
            self._say(Kind.SESSION_DELETED, session)
            self._finish(session)

    def undelete(self, session: str) -> None:
        make_folders(self._host, f"{self._root}/{INTENTS}")
        with self._alone(wait_s=_WAIT_S):
            self._finish_each(f"{self._root}/{INTENTS}")
            self._say(Kind.SESSION_UNDELETED, session)

    def finish_all(self) -> None:
        """What a crash left undone. Somebody who is deleting just now sees to it himself."""
        folder = f"{self._root}/{INTENTS}"
        if self._host.stat(folder) is None or not self._host.names(folder):
            return
        try:
            with self._alone(wait_s=0):
                self._finish_each(folder)
        except Busy:
            pass  # he holds the lock because he is at work

    def _finish_each(self, folder: str) -> None:
        dead = Tombstones(self._host, self._root)
        for name in self._host.names(folder):
            session = "" if name.endswith(".tmp") else read_file(self._host, f"{folder}/{name}").decode()
            if session and dead.has(session):
                self._finish(session)
            else:
                self._host.remove(f"{folder}/{name}")

    @contextmanager
    def _alone(self, wait_s: float) -> Iterator[None]:
        path = f"{self._root}/{LOCK}"
        handle = self._host.open_lock(path)
        try:
            lock(self._host, handle, where=path, wait_s=wait_s)
            yield
        finally:
            self._host.close(handle)

    def _say(self, kind: str, session: str) -> None:
        self._journals.say("", kind, {"session": session})

    def _finish(self, session: str) -> None:
        """What is known only from the journal comes before the journal: a crash in between must not lose the trail."""
        name = folder_of(session)
        folder = f"{self._root}/{name}"
        taps = forget.connections(self._host, folder)
        forget.forget_spooled(self._host, self._root, session)
        forget.erase_in_keep(self._host, self._root, session, taps)
        self._remove_aside(os.path.basename(name), forget.marks_of(session, taps))
        if self._host.stat(folder) is not None:
            self._journals.writer(session).remove()
        self._forget(name)
        self._host.remove(f"{self._root}/{INTENTS}/{os.path.basename(name)}")

    def _remove_aside(self, prefix: str, marks: Collection[bytes]) -> None:
        """What was set aside of its journal; of the keep's own, what holds something of it; and its copies in undo ledgers."""
        folder = f"{self._root}/{ASIDE}"
        if self._host.stat(folder) is None:
            return
        for name in self._host.names(folder):
            inside = self._host.stat(f"{folder}/{name}")
            if inside and inside.is_folder:
                for kept in self._host.names(f"{folder}/{name}"):
                    self._remove_if(f"{folder}/{name}/{kept}", prefix, marks)
                self._host.sync_folder(f"{folder}/{name}")
            else:
                self._remove_if(f"{folder}/{name}", prefix, marks)
        self._host.sync_folder(folder)

    def _remove_if(self, path: str, prefix: str, marks: Collection[bytes]) -> None:
        name = os.path.basename(path)
        if name != _LEDGER and (name.startswith(f"{prefix}.") or any(mark in read_file(self._host, path) for mark in marks)):
            self._host.remove(path)
