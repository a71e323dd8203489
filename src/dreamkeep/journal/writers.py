"""All the journals of one keep that this process writes: one writer each, and only so many files open at a time."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

from dreamkeep.errors import Deleted, from_os
from dreamkeep.event import Body, Carry, Event, Ids, rfc3339
from dreamkeep.host import Host, make_folders
from dreamkeep.host.liveness import notice_forks
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.witness import Sighting, note_quietly
from dreamkeep.journal.writer import PART_SIZE, Writer

# A writer has two handles; half of what the process may have open is for others.
_HANDLES_SHARE = 4


class JournalWriters:
    """`mask` changes each event before it is written. `witness`: whether the witness learns what was written."""

    def __init__(
        self,
        host: Host,
        root: str,
        ids: Ids,
        *,
        part_size: int = PART_SIZE,
        open_writers: int | None = None,
        mask: Callable[[Event], Event] | None = None,
        witness: bool = True,
    ) -> None:
        self.mask = mask
        self._witness = witness
        self._host = host
        self._root = root
        self._ids = ids
        self._part_size = part_size
        self._open_writers = open_writers or max(8, host.most_handles() // _HANDLES_SHARE)
        self._mutex = threading.Lock()
        self._writers: dict[str, Writer] = {}
        self._recent: OrderedDict[str, Writer] = OrderedDict()
        self._synced: set[str] = set()
        notice_forks(self)

    def append(self, session: str, events: Sequence[Event]) -> tuple[int | None, ...]:
        """Append to a session's journal, or to the keep's own (`session` is "")."""
        return self.writer(session).append(self._masked(events))

    def append_if(
        self,
        session: str,
        events: Sequence[Event],
        expect: Mapping[str, int | str | None],
        still: Callable[[], bool] = lambda: True,
    ) -> tuple[int | None, ...] | None:
        """If the journal carries exactly `expect`, and `still` is true while nobody else can write; None if another writer was
        quicker."""
        return self.writer(session).append_if(self._masked(events), expect, still)

    def say(self, session: str, kind: str, body: Body, carry: Carry | None = None) -> None:
        """Append one event that happens now."""
        event = Event(self._ids.new(), kind, rfc3339(self._host.now()), body, carry)
        self.writer(session).append(self._masked((event,)))

    def _masked(self, events: Sequence[Event]) -> Sequence[Event]:
        return [self.mask(event) for event in events] if self.mask else events

    def writer(self, session: str) -> Writer:
        """Use it at once: if many others are used meanwhile, its files are closed and must be opened again."""
        writer = self._writers.get(session)
        if writer and len(self._writers) <= self._open_writers:
            return writer  # all of them may stay open, so it doesn't matter which was used last
        idle = None
        with self._mutex:
            writer = self._writers.get(session)
            if writer is None:
                writer = self._writers[session] = self._new(session)
            self._recent[session] = writer
            self._recent.move_to_end(session)
            if len(self._recent) > self._open_writers:
                idle = self._recent.popitem(last=False)[1]
        if idle:
            idle.park()
        return writer

    def _new(self, session: str) -> Writer:
        name = _folder(session)
        self._prepare(os.path.dirname(name))
        return Writer(
            self._host,
            f"{self._root}/{name}",
            journal=session or "keep",
            aside=f"{self._root}/aside",
            new_id=self._ids.new,
            may_begin=lambda: self._refuse_if_buried(session),
            witness=lambda position: self._note([Sighting(name, session, *position)]),
            part_size=self._part_size,
        )

    def _refuse_if_buried(self, session: str) -> None:
        if session and Tombstones(self._host, self._root).has(session):
            raise Deleted("this session was deleted", where=session, next="Lift that first with `dreamkeep undelete`.")

    def _prepare(self, name: str) -> None:
        """Make the folders above a journal durable, even if the process that made them died before syncing them."""
        if name in self._synced:
            return
        folder = f"{self._root}/{name}"
        try:
            make_folders(self._host, folder)
            while len(folder) > len(self._root):
                folder = os.path.dirname(folder)
                self._host.sync_folder(folder)
            self._sync_above()
        except OSError as problem:
            raise from_os(problem, "creating the keep's folders", folder) from problem
        self._synced.add(name)

    def _sync_above(self) -> None:
        """The keep's own name. Where we may not open the folder above, its owner made that name long ago."""
        try:
            self._host.sync_folder(os.path.dirname(self._root))
        except PermissionError:
            pass

    def close(self) -> None:
        with self._mutex:
            for writer in self._writers.values():
                writer.park()
            ends = [(session, writer.take_new_end()) for session, writer in self._writers.items()]
            self._writers.clear()
            self._recent.clear()
        self._note([Sighting(_folder(session), session, *end) for session, end in ends if end])

    def _note(self, sightings: Collection[Sighting]) -> None:
        if self._witness:
            note_quietly(self._host, self._root, sightings)

    def after_fork(self) -> None:
        self._mutex = threading.Lock()
        self._ids.after_fork()
        for writer in self._writers.values():
            writer.after_fork()


def _folder(session: str) -> str:
    return folder_of(session) if session else KEEP
