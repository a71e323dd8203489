"""Group commit across journals: of many threads that append at once, one does the work for all who wait.

With a handful of threads everybody writes and syncs for himself. With dozens, Python spends its time handing its global lock from
thread to thread, so the first to come leads: he writes what the others left in the queue, has the kernel sync all those files
at the same time, wakes their owners, and passes the lead on. Whoever is woken checks that his bytes are covered, and if not (an
error, a part that was rotated meanwhile) goes the ordinary way: leading is a favour, not a promise.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic

from dreamkeep.errors import NotDurable
from dreamkeep.event import Event
from dreamkeep.host import Host
from dreamkeep.journal.writer import Part, Writer, Written

#: Below so many appending threads everybody goes alone.
_MANY = 8
_MOST = 64
_ROUNDS = 1
# A crowd that was just served comes back one by one: it is still a crowd.
_CROWD_S = 0.05


class _Ticket:
    __slots__ = ("event", "gate", "leads", "problem", "tried", "writer", "written")

    def __init__(self, writer: Writer, event: Event) -> None:
        self.writer = writer
        self.event = event
        self.tried = False
        self.written: Written | None = None
        self.problem: Exception | None = None
        #: Woken to lead, not because the work is done.
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


def _wake(ticket: _Ticket | None) -> None:
    if ticket:
        ticket.gate.release()


class Together:
    def __init__(self, host: Host) -> None:
        self._host = host
        #: One entry for each thread that is appending now; its length is all that matters, and changing it is atomic.
        self._appending: list[None] = []
        self._mutex = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        # True from the moment somebody leads until the queue is found empty: while it is, every ticket will be seen to.
        self._led = False
        self._syncing = 0
        self._held_back = False
        self._able = True
        self._crowded_until = 0.0

    def append(self, writer: Writer, events: Sequence[Event]) -> tuple[int | None, ...]:
        appending = self._appending
        appending.append(None)
        try:
            if len(appending) >= _MANY:
                self._crowded_until = monotonic() + _CROWD_S
            elif not self._crowded_until or monotonic() > self._crowded_until:
                self._crowded_until = 0.0
                return writer.append(events)
            return self._queued(writer, events[0]) if self._able and len(events) == 1 else writer.append(events)
        finally:
            appending.pop()

    def _queued(self, writer: Writer, event: Event) -> tuple[int | None, ...]:
        ticket = _Ticket(writer, event)
        with self._mutex:
            self._queue.append(ticket)
            leads = not self._led
            self._led = True
        if not leads:
            self._await(ticket)
        if leads or ticket.leads:
            self._lead()
        if ticket.problem:
            raise ticket.problem
        if ticket.written is None:
            return writer.append((event,))
        writer.make_durable(ticket.written)
        return ticket.written.seqs

    def _await(self, ticket: _Ticket) -> None:
        try:
            ticket.gate.acquire()
        except BaseException:
            # Interrupted: nobody may wait for us to lead. What a leader has taken up already will be written.
            with self._mutex:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                heir = self._next_leader() if ticket.leads else None
            _wake(heir)
            raise

    def _lead(self) -> None:
        """One round for everybody in the queue (we are its first), then pass the lead on."""
        batch: list[_Ticket] = []
        try:
            self._write(batch)
            self._sync({id(ticket.written.part): ticket.written.part for ticket in batch if ticket.written})
        finally:
            self._pass_on(synced=True)
            for ticket in batch:
                ticket.gate.release()

    def _write(self, batch: list[_Ticket]) -> None:
        """Takes the queue into `batch`. Whatever happens, the lead is passed on."""
        try:
            batch += [self._queue.popleft() for _ in range(min(len(self._queue), _MOST))]
            for ticket in batch:
                ticket.tried = True
                try:
                    # None: somebody holds that journal. Its owner may wait for it, the others need not.
                    ticket.written = ticket.writer.write_at_once(ticket.event)
                    ticket.tried = ticket.written is not None
                except Exception as problem:  # belongs to whoever asked, and is raised there
                    ticket.problem = problem
        finally:
            for ticket in batch:
                if ticket.tried and ticket.written is None and ticket.problem is None:
                    ticket.problem = NotDurable("the append was interrupted", where=ticket.writer.folder, next="Try again.")
            self._pass_on(synced=False)

    def _pass_on(self, *, synced: bool) -> None:
        """The next round may be written while this one is synced, but not two: what waits for a sync grows into a group."""
        heir = None
        with self._mutex:
            self._syncing += -1 if synced else 1
            wanted = self._held_back if synced else True
            self._held_back = wanted and self._syncing > _ROUNDS
            if wanted and not self._held_back:
                heir = self._next_leader()
        _wake(heir)

    def _next_leader(self) -> _Ticket | None:
        """Under the mutex: the first in the queue leads; nobody does when it is empty."""
        heir = self._queue[0] if self._queue else None
        self._led = heir is not None
        if heir:
            heir.leads = True
        return heir

    def _sync(self, written: dict[int, Part]) -> None:
        """All of them at once, leaving out those that somebody is syncing already."""
        mine = [part for part in written.values() if part.synced < part.end and part.sync_turn.acquire(blocking=False)]
        try:
            ready = [part for part in mine if part.handle >= 0 and part.failed is None]
            ends = [part.end for part in ready]
            try:
                outcome = self._host.sync_all([part.handle for part in ready]) if ready else []
            except OSError:
                outcome = (
                    None  # the kernel's queue failed, not a file: everybody syncs for himself, and hears of it if that fails
                )
            if outcome is None:
                self._able = False
                return
            for part, end, problem in zip(ready, ends, outcome, strict=True):
                if problem is None:
                    part.synced = end
                elif problem.errno != errno.EAGAIN:  # that one was not even tried
                    part.failed = problem
        finally:
            for part in mine:
                part.sync_turn.release()
