"""Append, and return only when the bytes are on disk.

One append: number and link the frames under the lock, one write, unlock, sync, acknowledge. The lock (flock on the file `lock`)
is held only around the write; threads that wait share one sync. The length of the file `lock` is the number of the part being
written, so one lseek tells every other process that it must move on. It is only a hint: opening looks at the folder.

A failed sync is never repeated on that handle and never acknowledged, because the page cache proves nothing any more. The part is
sealed as suspect (the next part's head says so). The frames in doubt are written again into the next part, each with the seq it
had (`was`), so that a reader counts it once, whichever of the two survives.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dreamkeep.errors import from_os
from dreamkeep.event import Carry, Event, Kind, rfc3339
from dreamkeep.host import Host, lock, make_folders
from dreamkeep.journal import erase, parts
from dreamkeep.journal.erase import Change
from dreamkeep.journal.frame import FORMAT, NO_CRC, FrameDraft, draft, parse, place, undraft
from dreamkeep.journal.open_state import Carried, merge, set_aside, survey
from dreamkeep.journal.reader import Position

T = TypeVar("T")

#: A part that has reached this size is finished; the next append opens another.
PART_SIZE = 4 << 20
_WAIT_S = 60.0
#: How often an append may move to another part after a failed sync before it gives up.
_CHANCES = 2


class OpenPart:
    """The part being written, as this process sees it."""

    def __init__(self, number: int, handle: int, inode: int, end: int) -> None:
        self.number = number
        #: Below 0 while the writer is parked.
        self.handle = handle
        self.inode = inode
        self.end = end
        #: Up to where this process saw a sync succeed.
        self.synced = 0
        self.failed: OSError | None = None
        #: After a failed sync: the part that took over every frame in doubt.
        self.successor: OpenPart | None = None
        self.unended = False
        self.sync_turn = threading.Lock()


class PendingAppend(NamedTuple):
    """One append that was written to `part` up to `end` and waits for its sync."""

    seqs: tuple[int | None, ...]
    drafts: list[FrameDraft]
    first: int
    part: OpenPart
    end: int


class Writer:
    """Appends to one journal. Any number of threads may share it, any number of processes may have their own."""

    def __init__(
        self,
        host: Host,
        folder: str,
        *,
        journal: str,
        aside: str,
        new_id: Callable[[], str],
        may_begin: Callable[[], None] = lambda: None,
        witness: Callable[[Position], None] = lambda position: None,
        part_size: int = PART_SIZE,
        wait_s: float = _WAIT_S,
    ) -> None:
        self._host = host
        self.folder = folder
        self._journal = journal
        self._aside = aside
        self._new_id = new_id
        self._may_begin = may_begin
        self._witness = witness
        self._part_size = part_size
        self._wait_s = wait_s
        self._mutex = threading.Lock()
        self._lock_handle = -1
        self._part: OpenPart | None = None
        self._seq = 0
        self._crc = NO_CRC
        self._carry: Carried = {}
        #: The seq that was there before we wrote, so the witness need not learn of it. Below 0: not known yet.
        self._witnessed = -1

    # -- what callers use

    def append(self, events: Sequence[Event]) -> tuple[int | None, ...]:
        """Write all of `events` in one write and one sync. Returns their seqs, None for one that was there already (its cursor is
        not new). Raises NotDurable (or a subclass) when the disk does not take them."""
        written = self._locked(self._write_new, events, [draft(event) for event in events])
        self._make_durable(written)
        return written.seqs

    def append_if(
        self, events: Sequence[Event], expect: Mapping[str, int | str | None], still: Callable[[], bool] = lambda: True
    ) -> tuple[int | None, ...] | None:
        """As `append`, if the journal carries exactly what the caller expects and `still` is true while nobody else can write;
        None when another writer was quicker."""
        written = self._locked(self._write_if, events, [draft(event) for event in events], expect, still)
        if written is None:
            return None
        self._make_durable(written)
        return written.seqs

    def carried(self, key: str) -> int | str | None:
        """What the journal carries under `key`: a source's cursor, the session's state. Makes no journal."""
        return self._locked(self._carry_of, key) if self._part or self.exists() else None

    def all_carried(self) -> Carried:
        """A copy of everything the journal carries."""
        return self._locked(self._copy_carry) if self._part or self.exists() else {}

    def exists(self) -> bool:
        return bool(parts.numbers(self._host, self.folder))

    def park(self) -> None:
        """Close the handles; the next append opens them again."""
        with self._mutex:
            self._close_handles()

    def take_new_end(self) -> Position | None:
        """Of a parked writer: the place behind the last frame, if it is new since the last call and all of it is on disk."""
        with self._mutex:
            part = self._part
            if part is None or part.failed or part.unended or part.synced < part.end or self._seq <= self._witnessed:
                return None
            self._witnessed = self._seq
            return Position(part.number, part.end, self._seq, self._crc)

    def remove(self) -> None:
        """Remove the whole journal. Other writers see at their next append that their lock file has no name any more."""
        host = self._host
        with self._mutex:
            self._close_part()
            self._witnessed = -1
            handle = host.open_lock(f"{self.folder}/{parts.LOCK}")
            try:
                lock(host, handle, where=self.folder, wait_s=self._wait_s)
                self._remove_files(handle)
            finally:
                host.close(handle)
                self._close_handles()

    def erase(self, change: Change, marks: Collection[bytes] = ()) -> int:
        """Erase words in frames, in place. Returns how many lines were changed."""
        return self._locked(self._erase, change, marks)

    def after_fork(self) -> None:
        """In a forked child: threads that don't exist here may hold the parent's mutexes, and its handles are copies."""
        self._mutex = threading.Lock()
        if self._part:
            self._part.sync_turn = threading.Lock()
            self._part.synced = self._part.end  # the parent's frames are the parent's to sync
        self._witnessed = self._seq
        self._close_handles()

    # -- durable

    def _make_durable(self, written: PendingAppend) -> None:
        """Nothing is left to do if another thread's sync covered it."""
        try:
            self._sync(written.part, written.end)
        except OSError as problem:
            self._retry(written, problem)

    def _retry(self, written: PendingAppend, failure: OSError) -> None:
        """A failure seals the part. The frames get another chance in a new one."""
        for _ in range(_CHANCES):
            written = self._locked(self._move_to_successor, written)
            try:
                self._sync(written.part, written.end)
                return
            except OSError as problem:
                failure = problem
        raise from_os(failure, "syncing", self.folder) from failure

    def _sync(self, part: OpenPart, end: int) -> None:
        """The first thread syncs for all that wait."""
        if part.synced >= end:
            return
        with part.sync_turn:
            if part.synced >= end:
                return
            if part.failed:
                raise part.failed
            written = part.end
            try:
                self._host.sync(part.handle)
            except OSError as problem:
                part.failed = problem
                raise
            part.synced = written

    def _move_to_successor(self, written: PendingAppend) -> PendingAppend:
        """Move frames out of a part whose sync failed; the first to come seals the part and moves all that is in doubt."""
        old = written.part
        if old.successor is None and self._current.number == old.number:
            self._seal(str(old.failed))
            old.successor = self._current
        if old.successor:
            # Everything in doubt was durable there before anyone else could write to it.
            return written._replace(part=old.successor, end=0)
        # Another process sealed it, and we can't know whether it moved our frames. Writing them twice does no harm.
        self._write(written.drafts, self._current, was=range(written.first, written.first + len(written.drafts)))
        return written._replace(part=self._current, end=self._current.end)

    # -- under the mutex and the lock

    def _locked(self, act: Callable[..., T], *args: Any) -> T:
        """Run `act` while nobody else writes this journal, and knowing where it ends."""
        host = self._host
        with self._mutex:
            try:
                while True:
                    if self._lock_handle < 0:
                        self._open_lock()
                    # Locking is inside: an interrupt just after it must not leave the lock behind; unlocking twice is harmless.
                    try:
                        if not host.try_lock(self._lock_handle):
                            lock(host, self._lock_handle, where=self.folder, wait_s=self._wait_s)
                        if self._up_to_date():
                            return act(*args)
                    finally:
                        host.unlock(self._lock_handle)
                    # The lock file has no name any more: the journal was deleted, or someone removed the file.
                    self._close_part()
                    self._close_handles()
            except OSError as problem:
                raise from_os(problem, "writing", self.folder) from problem

    def _up_to_date(self) -> bool:
        """Update what we know from the disk. False when our lock is no longer the journal's lock."""
        host = self._host
        part = self._part
        if part and host.end(self._lock_handle) == part.number and (part.handle >= 0 or self._reopen(part)):
            end = host.end(part.handle)
            if end == part.end or (end > part.end and self._follow(part, end)):
                return True
        if host.handle_stat(self._lock_handle).links == 0:
            return False
        try:
            self._settle()
        except BaseException:
            if self._part:
                # Then it is unknown where it ends. No lock file has this length, so the next append looks again.
                self._part.number = -1
            raise
        return True

    def _carry_of(self, key: str) -> int | str | None:
        return self._carry.get(key)

    def _copy_carry(self) -> Carried:
        return dict(self._carry)

    def _reopen(self, part: OpenPart) -> bool:
        """A parked part, if it is still the same file."""
        handle = self._host.open_append(f"{self.folder}/{parts.name(part.number)}")
        if self._host.handle_stat(handle).inode != part.inode:
            self._host.close(handle)
            return False
        part.handle = handle
        return True

    def _open_lock(self) -> None:
        if self._host.stat(self.folder) is None:
            self._may_begin()
            make_folders(self._host, self.folder)
        self._lock_handle = self._host.open_lock(f"{self.folder}/{parts.LOCK}")

    def _follow(self, part: OpenPart, end: int) -> bool:
        """Read what other processes appended. False when it is not simply more frames: then the part must be settled."""
        data = self._host.read(part.handle, end - part.end, part.end)
        if part.unended or len(data) != end - part.end or data[-1:] != b"\n":
            return False
        seq, crc = self._seq, self._crc
        carry = dict(self._carry)
        for line in data[:-1].split(b"\n"):
            frame = parse(line)
            if frame is None or frame["seq"] != seq + 1 or frame["prev"] != crc:
                return False
            seq, crc = frame["seq"], frame["crc"]
            merge(carry, frame)
        part.end, self._seq, self._crc, self._carry = end, seq, crc, carry
        return True

    def _settle(self) -> None:
        """Find the end of the journal. Set a bad tail aside, then cut it; record holes. Then its last part is ours to write."""
        host = self._host
        doubted = self._part if self._part and self._part.failed else None
        self._close_part()
        found = survey(host, self.folder)
        self._seq, self._crc, self._carry = found.position.seq, found.position.crc, found.carry
        if self._witnessed < 0:
            self._witnessed = self._seq
        notes: list[FrameDraft] = []
        if found.part == 0:
            # Asked under the lock: a tombstone that was written before the parts were removed is seen here.
            self._may_begin()
        if found.part == 0 or found.cold:
            self._open_part(found.part + 1)
        else:
            handle = host.open_append(f"{self.folder}/{parts.name(found.part)}")
            part = self._part = self._part_at(found.part, handle)
            if doubted and doubted.inode == part.inode:
                # The kernel reports a failed sync once: a new handle would not learn of it.
                part.failed, part.synced = doubted.failed, min(doubted.synced, part.end)
            if found.tail and found.tail.whole:
                part.unended = True
            elif found.tail:
                kept = set_aside(host, self._aside, self.folder, handle, found.tail)
                # Set aside first, cut second: a crash between the two leaves a copy, never a loss.
                host.cut(handle, found.tail.offset)
                part.end = found.tail.offset
                # The damage may have begun with the line feed of the last good frame.
                part.unended = part.end > 0 and host.read(handle, 1, part.end - 1) != b"\n"
                notes += self._note(Kind.JOURNAL_SETTLED, {"journal": self._journal, **found.tail._asdict(), "aside": kept})
            if not found.headed:
                self._write(self._head(found.part), part)
            # The process that created these names may have died before making them durable.
            host.sync_folder(self.folder)
            host.sync_folder(os.path.dirname(self.folder))
        if found.holes:
            notes += self._note(Kind.JOURNAL_HOLE, {"journal": self._journal, "holes": found.holes})
        if notes:
            self._write(notes, self._current)
        host.cut(self._lock_handle, self._current.number)

    def _write_new(self, events: Sequence[Event], drafted: list[list[FrameDraft]]) -> PendingAppend:
        if self._current.failed:
            self._seal(str(self._current.failed))
        fresh, carry = self._find_new(events)
        drafts = [d for own, new in zip(drafted, fresh, strict=True) if new for d in own]
        # A line feed that a crash took away is written before the next frame, so that frame goes into the same part.
        if drafts and self._current.end >= self._part_size and not self._current.unended:
            self._rotate()
        first = self._seq + 1
        part = self._current
        if drafts:
            self._write(drafts, part)
            self._carry = carry
        seqs: list[int | None] = []
        last = first - 1
        for own, new in zip(drafted, fresh, strict=True):
            last += len(own) if new else 0
            seqs.append(last if new else None)
        # A replay is acknowledged too, so what it repeats must be durable: even an empty batch is synced.
        return PendingAppend(tuple(seqs), drafts, first, part, part.end)

    def _write_if(
        self,
        events: Sequence[Event],
        drafted: list[list[FrameDraft]],
        expect: Mapping[str, int | str | None],
        still: Callable[[], bool],
    ) -> PendingAppend | None:
        if any(self._carry.get(key) != value for key, value in expect.items()) or not still():
            return None
        return self._write_new(events, drafted)

    def _erase(self, change: Change, marks: Collection[bytes]) -> int:
        """A process that has the last part open would go on writing to a file without a name, so that part is finished first.

        More than once, if its sync fails: then the next part begins with the frames in doubt, which may have the same words.
        """
        host, folder = self._host, self.folder
        erase.sweep(host, folder)
        while erase.changed(host, folder, self._current.number, change, marks)[0]:
            self._rotate()
        last = self._current.number
        return sum(erase.rewrite(host, folder, part, change, marks) for part in parts.numbers(host, folder) if part < last)

    def _find_new(self, events: Sequence[Event]) -> tuple[list[bool], Carried]:
        """Which events are new by their cursors, and what is carried once they are written."""
        fresh = []
        carry = self._carry
        for event in events:
            new = not (event.carry and _is_replay(carry, event.carry))
            fresh.append(new)
            if new and event.carry:
                carry = {**carry, **event.carry}
        return fresh, carry

    def _write(self, drafts: Sequence[FrameDraft], part: OpenPart, was: Sequence[int] = ()) -> None:
        """One write for all of them. If the disk took only a part, that is cut off again."""
        data, crc = place(drafts, self._seq, self._crc, was)
        if part.unended:
            data = b"\n" + data
        taken = self._host.write(part.handle, data)
        if taken < len(data):
            self._write_rest(part, data, taken)
        # All at once: an interrupt between two of them would make the next append reuse a seq.
        end, seq = part.end + len(data), self._seq + len(drafts)
        part.unended, part.end, self._seq, self._crc = False, end, seq, crc

    def _write_rest(self, part: OpenPart, data: bytes, taken: int) -> None:
        try:
            while taken < len(data):
                taken += self._host.write(part.handle, data[taken:])
        except OSError:
            self._host.cut(part.handle, part.end)
            raise

    # -- parts

    @property
    def _current(self) -> OpenPart:
        assert self._part is not None, "a settled journal has a part"
        return self._part

    def _part_at(self, number: int, handle: int) -> OpenPart:
        state = self._host.handle_stat(handle)
        return OpenPart(number, handle, state.inode, state.size)

    def _rotate(self) -> None:
        """Finish the part. All of it is durable before the next one begins, so that nothing can be missing between them."""
        old = self._current
        try:
            self._sync(old, old.end)
        except OSError as problem:
            self._seal(str(problem))
            return
        self._open_part(old.number + 1)
        self._retire(old)
        self._witness(Position(self._current.number, self._current.end, self._seq, self._crc))
        self._witnessed = self._seq

    def _seal(self, why: str) -> None:
        """After a failed sync: begin a new part that says so and has every frame again that we never saw synced."""
        old = self._current
        drafts, was = self._read_in_doubt(old)
        self._open_part(old.number + 1, {"part": old.number, "why": why}, drafts, was)
        old.successor = self._current
        self._retire(old)

    def _read_in_doubt(self, part: OpenPart) -> tuple[list[FrameDraft], list[int]]:
        data = self._host.read(part.handle, part.end - part.synced, part.synced)
        drafts: list[FrameDraft] = []
        was: list[int] = []
        for line in data.split(b"\n"):
            frame = parse(line)
            if frame and frame["kind"] != Kind.PART_OPENED:
                drafts.append(undraft(line, frame))
                was.append(frame["was"] if "was" in frame else frame["seq"])
        return drafts, was

    def _open_part(
        self, number: int, suspect: dict[str, Any] | None = None, drafts: Sequence[FrameDraft] = (), was: Sequence[int] = ()
    ) -> None:
        """Create, fill, sync the file, sync the folder. Other processes learn of it first.

        If they learned of it last, a crash in between would leave a part that only new writers know.
        """
        host = self._host
        path = f"{self.folder}/{parts.name(number)}"
        seq, crc = self._seq, self._crc
        host.cut(self._lock_handle, number)
        part = self._part_at(number, host.create(path))
        try:
            self._write(self._head(number, suspect), part)
            if drafts:
                self._write(drafts, part, was)
            host.sync(part.handle)
            host.sync_folder(self.folder)
            if number == 1:
                host.sync_folder(os.path.dirname(self.folder))
        except OSError as problem:
            handle, part.handle = part.handle, -1
            host.close(handle)
            try:
                host.remove(path)  # nothing in it was acknowledged
                self._seq, self._crc = seq, crc
            except OSError:
                # Then it stays as a part whose sync failed, and the next append seals it.
                part.failed = problem
                self._part = part
            raise
        part.synced = part.end
        self._part = part

    def _head(self, number: int, suspect: dict[str, Any] | None = None) -> list[FrameDraft]:
        body: dict[str, Any] = {"format": FORMAT, "journal": self._journal, "part": number, "carry": self._carry}
        if suspect:
            body["suspect"] = suspect
        return self._note(Kind.PART_OPENED, body)

    def _note(self, kind: str, body: dict[str, Any]) -> list[FrameDraft]:
        return draft(Event(self._new_id(), kind, rfc3339(self._host.now()), body))

    def _retire(self, part: OpenPart) -> None:
        """Close a part's handle, but not while threads wait for its sync."""
        with part.sync_turn:
            if part.synced < part.end and part.failed is None:
                try:
                    self._host.sync(part.handle)
                    part.synced = part.end
                except OSError as problem:
                    part.failed = problem
            # Forget the handle before closing it: after an interrupt in between, its number may be another file's.
            handle, part.handle = part.handle, -1
            if handle >= 0:
                self._host.close(handle)

    def _close_part(self) -> None:
        if self._part:
            self._retire(self._part)
            self._part = None

    def _close_handles(self) -> None:
        if self._part:
            self._retire(self._part)
        handle, self._lock_handle = self._lock_handle, -1
        if handle >= 0:
            self._host.close(handle)

    def _remove_files(self, lock_handle: int) -> None:
        host = self._host
        for name in host.names(self.folder):
            if name != parts.LOCK:
                host.remove(f"{self.folder}/{name}")
        host.sync_folder(self.folder)
        # A process that has the lock file open sees by its length that the journal is gone.
        host.cut(lock_handle, 0)
        host.remove(f"{self.folder}/{parts.LOCK}")
        host.remove_folder(self.folder)
        host.sync_folder(os.path.dirname(self.folder))


def _is_replay(known: Carried, carry: Carry) -> bool:
    """A cursor that was reached before, or only text that is carried already."""
    cursors = [(key, value) for key, value in carry.items() if isinstance(value, int)]
    if cursors:
        return any(isinstance(reached := known.get(key), int) and value <= reached for key, value in cursors)
    return all(known.get(key) == value for key, value in carry.items())
