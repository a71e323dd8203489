"""Undo a repair: a file that is still as the repair left it gets its earlier bytes back; whatever has changed since stays.

Only the end of a journal can be taken off: under its lock, and only if nothing but frames of that repair follows what was there
before. Undo looks at everything as it is now, so an undo that dies halfway is simply run again.

Hook calls come last: if the journal that a call went to had to be left alone, the call must not come back to the spool, because
it would be journaled twice.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from dreamkeep.capture.hooks import spool
from dreamkeep.errors import DreamkeepError, Failed, NotFound
from dreamkeep.event import Kind
from dreamkeep.host import FOLDER_MODE, Host, lock, make_folders, read_file, write_all, write_new
from dreamkeep.journal import parts, witness
from dreamkeep.journal.frame import parse
from dreamkeep.journal.open_state import set_aside, survey
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Tail
from dreamkeep.journal.scan import read_events
from dreamkeep.recovery.repair.ledger import (
    ASIDE,
    BLOCK,
    LOCK_WAIT_S,
    NOTES,
    Note,
    TakenFrames,
    crc_of,
    file_digest,
    ledger_folder,
    mark_of,
    note_taken_frames,
    read_notes,
    read_taken_frames,
    repair_ids,
)

#: The members of a note that name what was changed.
_SUBJECTS = ("file", "folder", "mode", "journal", "witness")


class Refusal(Exception):
    """Why one thing stays as it is."""


class UndoStep(NamedTuple):
    """The result for one thing. `reason`: why it was left alone; "" when it is as it was before the repair."""

    where: str
    fault: str
    reason: str
    session: str = ""


def find_repair(host: Host, root: str, text: str) -> str:
    """A repair's id, from itself or a unique beginning of it."""
    ids = repair_ids(host, root)
    matches = [id for id in ids if id == text] or [id for id in ids if text and id.startswith(text)]
    if len(matches) != 1:
        what = f"no repair {text!r} to undo" if not matches else f"{text!r} matches {len(matches)} repairs"
        some = ", ".join(ids[-5:]) or "none was applied"
        raise NotFound(what, where=f"{root}/{ASIDE}", next=f"The last ones: {some}.")
    return matches[0]


def undo(host: Host, root: str, undo_id: str) -> list[UndoStep]:
    """The newest change first. A step that is refused hinders no other."""
    notes = _read_notes(host, root, undo_id)
    void = {note["void"] for note in notes if "void" in note}
    settled = {note["settled"]: note["after"] for note in notes if "settled" in note}
    added = {id for note in notes for id in note.get("added", ())}
    undoing = _Undo(host, root, undo_id, added, read_taken_frames(host, root, undo_id))
    files: dict[str, list[Note]] = {}
    steps = []
    for note in notes:
        if "file" in note and note["n"] not in void:
            files.setdefault(note["file"], []).append({**note, "after": settled.get(note["n"], note["after"])})
    for note in sorted(notes, key=lambda note: (_subject(note).startswith(f"{root}/{spool.SPOOL}/"), -note["n"])):
        where = _subject(note)
        if not where or note["n"] in void or ("file" in note and note["n"] != files[where][-1]["n"]):
            continue  # a file that was changed several times goes back in one step
        reason = undoing.try_step(note, files.get(where, []))
        steps.append(UndoStep(where, note.get("fault", ""), reason, note.get("session", "")))
    return steps


def _subject(note: Note) -> str:
    """What a note is about; empty when it records no change."""
    return str(next(filter(None, map(note.get, _SUBJECTS)), ""))


def _read_notes(host: Host, root: str, undo_id: str) -> list[Note]:
    try:
        return read_notes(host, root, undo_id)
    except ValueError as problem:
        where = f"{ledger_folder(root, undo_id)}/{NOTES}"
        step = "It can't be undone automatically; the bytes that it kept are beside its records."
        raise Failed(f"the records of this repair are damaged ({problem})", where=where, next=step) from problem


class _Undo:
    def __init__(self, host: Host, root: str, undo_id: str, added: Collection[str], taken: TakenFrames) -> None:
        """`taken`: the frames that an earlier, interrupted undo took off."""
        self._host = host
        self._root = root
        self._id = undo_id
        self._taken = taken
        self._mark = mark_of(undo_id)
        self._added = added
        #: By journal, the hook calls that are in it.
        self._calls: dict[str, set[str]] = {}

    def try_step(self, note: Note, changes: list[Note]) -> str:
        """Undo one change; answers why it was left alone, or ""."""
        try:
            if "file" in note:
                self._file(note["file"], changes)
            elif "folder" in note:
                self._folder(note)
            elif "mode" in note:
                self._mode(note)
            elif "witness" in note:
                witness.put_back(self._host, self._root, [witness.Sighting(*seen) for seen in note["seen"]])
            else:
                self._journal(note)
        except (Refusal, DreamkeepError, OSError) as problem:
            return str(problem)
        except (KeyError, TypeError) as problem:
            return f"its record can't be parsed ({problem})"
        return ""

    # -- files

    def _file(self, path: str, changes: list[Note]) -> None:
        """Back to what it was before the first of these changes, if it is now as one of them left it."""
        host, before = self._host, changes[0]["before"]
        # Also the temporary file of an undo that died: its name is always the same.
        for temp in (self._temp(path), *(note["temp"] for note in changes if "temp" in note)):
            if host.stat(temp) is not None:
                host.remove(temp)
        now = file_digest(host, path)
        if _is_same(now, before):
            return
        states = [state for note in changes for state in (note["before"], note["after"])]
        drained = now is None and self._is_call(path) and not self._is_in_batch(path)
        if not drained and not any(state != "later" and _is_same(now, state) for state in states):
            unknown = "the repair did not finish, so it is unknown what it left there"
            raise Refusal(unknown if "later" in states else "it has changed since the repair")
        if before is None:
            host.remove(path)
        else:
            self._check_call(path, changes[0].get("session", ""))
            self._write_back(path, before, is_new=now is None)
        host.sync_folder(os.path.dirname(path))

    def _write_back(self, path: str, before: Note, *, is_new: bool) -> None:
        host, data = self._host, self._kept_bytes(before)
        make_folders(host, os.path.dirname(path))
        temp = self._temp(path)
        write_new(host, temp, [data])
        if host.stat(temp) and before["mode"] != 0o600:
            host.set_mode(temp, before["mode"])
        if not is_new:
            host.replace(temp, path)
            return
        try:
            host.link(temp, path)
        except FileExistsError:
            raise Refusal("something else has appeared there") from None
        finally:
            host.remove(temp)

    def _check_call(self, path: str, session: str) -> None:
        """A hook call is in the spool or in a journal, never in both. (Calls of some sessions are in the keep's own journal.)"""
        if not self._is_call(path):
            return
        for journal in (folder_of(session), KEEP) if session else (KEEP,):
            if os.path.basename(path) in self._calls_in(journal):
                raise Refusal(f"this call is in {journal}")

    def _is_call(self, path: str) -> bool:
        return path.startswith(f"{self._root}/{spool.SPOOL}/") and spool.entry(os.path.basename(path)) is not None

    def _is_in_batch(self, path: str) -> bool:
        """A drain that died left it in a batch; the next drain journals it."""
        batches = filter(spool.is_batch, spool.names(self._host, self._root))
        return any(os.path.basename(path) in self._host.names(f"{self._root}/{spool.SPOOL}/{batch}") for batch in batches)

    def _calls_in(self, journal: str) -> set[str]:
        if journal not in self._calls:
            read = read_events(self._host, f"{self._root}/{journal}")
            bodies = (event.body for _, event in read if event.kind == Kind.HOOK_FIRED)
            self._calls[journal] = {call for body in bodies for call in spool.journaled(body)}
        return self._calls[journal]

    def _temp(self, path: str) -> str:
        return f"{path}.{self._mark}0.tmp"

    def _kept_bytes(self, before: Note) -> bytes:
        path = f"{ledger_folder(self._root, self._id)}/{before['kept']}"
        if not _is_same(file_digest(self._host, path), before):
            raise Refusal("the bytes that were kept for this are damaged or gone (was its session deleted?)")
        return read_file(self._host, path)

    def _folder(self, note: Note) -> None:
        """A folder that the repair made goes if it is empty; one that it removed comes back with its mode."""
        host, path, before = self._host, note["folder"], note["before"]
        now = host.stat(path)
        if now is not None and not now.is_folder:
            raise Refusal("something else has appeared there since the repair")
        if before is None:
            if now is not None and not host.names(path):
                host.remove_folder(path)
                host.sync_folder(os.path.dirname(path))
            return
        made = now is None and host.make_folder(path)
        # An undo that died may have made it without setting its mode.
        if made or (now is not None and now.mode == FOLDER_MODE and not host.names(path)):
            host.set_mode(path, before)
            host.sync_folder(os.path.dirname(path))

    def _mode(self, note: Note) -> None:
        now = self._host.stat(note["mode"])
        if now is None:
            raise Refusal("it no longer exists")
        if now.mode == note["before"]:
            return
        if now.mode != note["after"]:
            raise Refusal("its mode has changed since the repair")
        self._host.set_mode(note["mode"], note["before"])

    # -- journals

    def _journal(self, note: Note) -> None:
        folder, before = f"{self._root}/{note['journal']}", note["before"]
        if self._host.stat(folder) is None:
            if before is not None:
                raise Refusal("the journal no longer exists (was its session deleted?)")
            return
        with self._locked(folder) as handle:
            numbers = parts.numbers(self._host, folder)
            last = before["part"] if before else 0
            newer = [number for number in numbers if number > last]
            if before and last not in numbers:
                raise Refusal("a part that existed is missing")
            frames: list[tuple[int, str]] = []
            for number in newer:
                frames += self._check_own_frames(folder, number, 0)
            tail = b""
            if before and not before.get("cold"):
                tail, own = self._check_end(folder, before)
                frames += own
            self._announce(note["journal"], frames)
            if before is None:
                self._remove_journal(folder, newer, handle, note.get("stood"))
            else:
                self._remove_parts(folder, newer)
                if not before.get("cold"):
                    self._cut_back(folder, before, tail)
                if self._host.end(handle) != before["lock"]:
                    self._host.cut(handle, before["lock"])
            self._update_witness(note["journal"], note.get("session", ""))

    @contextmanager
    def _locked(self, folder: str) -> Iterator[int]:
        handle = self._host.open_lock(f"{folder}/{parts.LOCK}")
        try:
            lock(self._host, handle, where=folder, wait_s=LOCK_WAIT_S)
            yield handle
        finally:
            self._host.close(handle)

    def _announce(self, journal: str, frames: list[tuple[int, str]]) -> None:
        """Before they are taken off: whoever has read these frames must not call them lost, even if this undo dies."""
        if not frames:
            return
        self._taken.setdefault(journal, set()).update(frames)
        with suppress(OSError):  # a full disk can't take it, and taking frames off helps then
            note_taken_frames(self._host, self._root, self._id, self._taken)

    def _update_witness(self, journal: str, session: str) -> None:
        """What was taken off is not lost, and the journal ends where it did before. (If this fails, `taken.json` says so.)"""
        with suppress(OSError, DreamkeepError):
            taken = self._taken.get(journal, set())
            seen = witness.load(self._host, self._root).seen.get(journal, ())
            if not any(sighting.frame in taken for sighting in seen):
                return
            witness.drop(self._host, self._root, journal, taken)
            end = survey(self._host, f"{self._root}/{journal}").position
            if end.seq:
                witness.note(self._host, self._root, [witness.Sighting(journal, session, *end)])

    def _check_end(self, folder: str, before: Note) -> tuple[bytes, list[tuple[int, str]]]:
        """Check that the part can be cut back. Returns what stood after its last good frame, and this repair's frames behind
        it."""
        number = before["part"]
        path = f"{folder}/{parts.name(number)}"
        if self._host.stat(path) is None:
            raise Refusal("the part has been compressed since the repair")
        if crc_of(self._host, path, before["size"]) != before["crc"]:
            raise Refusal("what was there before the repair no longer exists")
        tail = self._kept_bytes(before["tail"]) if "tail" in before else b""
        at = before["size"]
        there = self._read(path, at, len(tail) + 1)
        if tail.startswith(there):
            return tail, []  # only the noted end is there, perhaps because the repair went on in a new part
        if there.startswith(tail) and not self._is_frame(folder, number, at):
            at += len(tail)  # the disk was full, so the end was not cut, and the repair went on behind it
        return tail, self._check_own_frames(folder, number, at)

    def _is_frame(self, folder: str, number: int, offset: int) -> bool:
        if parts.is_cold(self._host, folder, number):
            return False
        with parts.stream(self._host, folder, number, offset) as source:
            return parse(source.readline(parts.LONGEST_LINE).removesuffix(b"\n")) is not None

    def _read(self, path: str, offset: int, size: int) -> bytes:
        handle = self._host.open_read(path)
        try:
            return self._host.read(handle, size, offset)
        finally:
            self._host.close(handle)

    def _check_own_frames(self, folder: str, number: int, offset: int) -> list[tuple[int, str]]:
        """Check that only frames of this repair, or a piece of an append that was never acknowledged, follow. Returns the
        frames."""
        if parts.is_cold(self._host, folder, number):
            raise Refusal("the part has been compressed since the repair")
        frames = []
        at = offset
        with parts.stream(self._host, folder, number, offset) as source:
            while line := source.readline(parts.LONGEST_LINE):
                frame = parse(line.removesuffix(b"\n"))
                if frame is None and line.strip():
                    rest = source.read(BLOCK)
                    if rest or number != parts.numbers(self._host, folder)[-1]:
                        raise Refusal("it holds something that the repair did not write")
                    self._set_aside(folder, Tail(number, at, len(line), whole=False))
                    break
                if frame and not self._is_own(frame["id"].partition(".")[0]):
                    raise Refusal("the journal has grown since the repair")
                if frame:
                    frames.append((frame["seq"], frame["crc"]))
                at += len(line)
        return frames

    def _is_own(self, id: str) -> bool:
        return id in self._added or id.replace("-", "").endswith(self._mark)

    def _set_aside(self, folder: str, tail: Tail) -> None:
        handle = self._host.open_read(f"{folder}/{parts.name(tail.part)}")
        try:
            set_aside(self._host, f"{self._root}/{ASIDE}", folder, handle, tail)
        finally:
            self._host.close(handle)

    def _remove_parts(self, folder: str, newer: list[int]) -> None:
        # From the end: a crash in between leaves a journal that is only shorter.
        for number in reversed(newer):
            self._host.remove(f"{folder}/{parts.name(number)}")
            self._host.sync_folder(folder)

    def _cut_back(self, folder: str, before: Note, tail: bytes) -> None:
        path = f"{folder}/{parts.name(before['part'])}"
        there = self._read(path, before["size"], len(tail) + 1)
        if there == tail:
            return
        handle = self._host.open_append(path)
        try:
            if not tail.startswith(there):
                self._host.cut(handle, before["size"])
                self._host.sync(handle)
                there = b""
            write_all(self._host, handle, tail[len(there) :])
            self._host.sync(handle)
        finally:
            self._host.close(handle)

    def _remove_journal(self, folder: str, newer: list[int], handle: int, stood: int | None) -> None:
        """Remove a journal that the repair began. `stood`: the length of the lock file that was there before (-1: there was a
        folder without one); None where there was no folder."""
        self._remove_parts(folder, newer)
        if stood is not None and stood >= 0:
            self._host.cut(handle, stood)
            return
        self._host.cut(handle, 0)
        self._host.remove(f"{folder}/{parts.LOCK}")
        if stood is None and not self._host.names(folder):
            self._host.remove_folder(folder)
            self._host.sync_folder(os.path.dirname(folder))


def _is_same(now: Note | None, then: Note | None) -> bool:
    return now == then or (now is not None and then is not None and now["sha256"] == then["sha256"])
