"""Undo a repair: each file whose bytes are still as the repair left them gets its earlier bytes back; what changed since stays.

Of a journal only the end can be taken back: under its lock, if nothing but frames of that repair follows what was there before.
Everything is looked at as it is, not as notes say it should be, so an undo that dies half-way is simply run again.
Hook calls come last: one that still stands in a journal, because that had to be left alone, would be journaled twice.
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
from dreamkeep.journal.reader import Reading, Tail, events
from dreamkeep.recovery.repair.ledger import (
    ASIDE,
    NOTES,
    PREFIX,
    Note,
    Taken,
    crc_of,
    file_digest,
    folders,
    mark_of,
    note_taken,
    notes,
    taken_off,
)

_WAIT_S = 60.0
_BLOCK = 1 << 20


class Refusal(Exception):
    """Why one thing is left as it is."""


class UndoStep(NamedTuple):
    """What one note came to: `reason` is "" when what it names is as it was before the repair."""

    where: str
    fault: str
    reason: str
    session: str = ""


def which(host: Host, root: str, text: str) -> str:
    """A repair's id, from itself or a unique beginning of it."""
    known = folders(host, root)
    matches = [one for one in known if one == text] or [one for one in known if text and one.startswith(text)]
    if len(matches) != 1:
        what = f"no repair {text!r} to undo" if not matches else f"{text!r} matches {len(matches)} repairs"
        some = ", ".join(known[-5:]) or "none was applied"
        raise NotFound(what, where=f"{root}/{ASIDE}", next=f"The last ones: {some}.")
    return matches[0]


def undo(host: Host, root: str, undo_id: str) -> list[UndoStep]:
    """The newest change first. One that is refused hinders no other."""
    found = _notes(host, root, undo_id)
    void = {note["void"] for note in found if "void" in note}
    later = {note["settled"]: note["after"] for note in found if "settled" in note}
    back = _Undo(host, root, undo_id, {one for note in found for one in note.get("added", ())}, taken_off(host, root, undo_id))
    files: dict[str, list[Note]] = {}
    steps = []
    for note in found:
        if "file" in note and note["n"] not in void:
            files.setdefault(note["file"], []).append({**note, "after": later.get(note["n"], note["after"])})
    for note in sorted(found, key=lambda note: (_where(note).startswith(f"{root}/{spool.SPOOL}/"), -note["n"])):
        where = _where(note)
        if not where or note["n"] in void or ("file" in note and note["n"] != files[where][-1]["n"]):
            continue  # a file that was changed several times goes back in one step
        reason = _undone(back, note, files.get(where, []))
        steps.append(UndoStep(where, note.get("fault", ""), reason, note.get("session", "")))
    return steps


def _where(note: Note) -> str:
    """What a note names; empty where it names nothing that was changed."""
    return str(note.get("file") or note.get("folder") or note.get("mode") or note.get("journal") or note.get("witness") or "")


def _notes(host: Host, root: str, undo_id: str) -> list[Note]:
    try:
        return notes(host, root, undo_id)
    except ValueError as problem:
        where = f"{root}/{ASIDE}/{PREFIX}{undo_id}/{NOTES}"
        step = "It can't be undone automatically; the bytes that it kept are beside its records."
        raise Failed(f"the records of this repair are damaged ({problem})", where=where, next=step) from problem


def _undone(back: _Undo, note: Note, changes: list[Note]) -> str:
    try:
        if "file" in note:
            back.file(note["file"], changes)
        elif "folder" in note:
            back.folder(note)
        elif "mode" in note:
            back.mode(note)
        elif "witness" in note:
            back.witness(note)
        else:
            back.journal(note)
    except Refusal as refusal:
        return str(refusal)
    except (DreamkeepError, OSError) as problem:
        return str(problem)
    except (KeyError, TypeError) as problem:
        return f"its record can't be parsed ({problem})"
    return ""


class _Undo:
    def __init__(self, host: Host, root: str, undo_id: str, added: Collection[str], taken: Taken) -> None:
        """`taken`: what an undo that died took off before."""
        self._host = host
        self._root = root
        self._id = undo_id
        self.taken = taken
        self._mark = mark_of(undo_id)
        self._added = added
        self._folder = f"{root}/{ASIDE}/{PREFIX}{undo_id}"
        #: By journal, the calls that stand in it.
        self._calls: dict[str, set[str]] = {}

    # -- files

    def file(self, path: str, changes: list[Note]) -> None:
        """To what it was before the first of these changes, if it is now as one of them left it."""
        host, before = self._host, changes[0]["before"]
        # Also of an undo that died: its name is known, because it is always the same.
        for temp in (self._temp(path), *(note["temp"] for note in changes if "temp" in note)):
            if host.stat(temp) is not None:
                host.remove(temp)
        now = file_digest(host, path)
        if _same(now, before):
            return
        known = [state for note in changes for state in (note["before"], note["after"])]
        drained = now is None and self._is_call(path) and not self._is_on_its_way(path)
        if not drained and not any(state != "later" and _same(now, state) for state in known):
            unknown = "the repair did not finish, so it is unknown what it left there"
            raise Refusal(unknown if "later" in known else "it has changed since the repair")
        if before is None:
            host.remove(path)
        else:
            self._check_call(path, changes[0].get("session", ""))
            self._give_back(path, before, appeared=now is None)
        host.sync_folder(os.path.dirname(path))

    def _give_back(self, path: str, before: Note, *, appeared: bool) -> None:
        host, data = self._host, self._kept(before)
        make_folders(host, os.path.dirname(path))
        temp = self._temp(path)
        write_new(host, temp, [data])
        if host.stat(temp) and before["mode"] != 0o600:
            host.set_mode(temp, before["mode"])
        if not appeared:
            host.replace(temp, path)
            return
        try:
            host.link(temp, path)
        except FileExistsError:
            raise Refusal("something else has appeared there") from None
        finally:
            host.remove(temp)

    def _check_call(self, path: str, session: str) -> None:
        """A hook call waits in the spool or stands in a journal, never both. (Of some sessions the keep's own has it.)"""
        if not self._is_call(path):
            return
        for journal in (folder_of(session), KEEP) if session else (KEEP,):
            if os.path.basename(path) in self._calls_in(journal):
                raise Refusal(f"this call is in {journal}")

    def _is_call(self, path: str) -> bool:
        return path.startswith(f"{self._root}/{spool.SPOOL}/") and spool.entry(os.path.basename(path)) is not None

    def _is_on_its_way(self, path: str) -> bool:
        """Of a drain that died: the next one journals what is in a batch."""
        batches = filter(spool.is_batch, spool.names(self._host, self._root))
        return any(os.path.basename(path) in self._host.names(f"{self._root}/{spool.SPOOL}/{one}") for one in batches)

    def _calls_in(self, journal: str) -> set[str]:
        if journal not in self._calls:
            found = (
                event.body for _, event in events(Reading(self._host, f"{self._root}/{journal}")) if event.kind == Kind.HOOK_FIRED
            )
            self._calls[journal] = {call for body in found for call in spool.journaled(body)}
        return self._calls[journal]

    def _temp(self, path: str) -> str:
        return f"{path}.{self._mark}0.tmp"

    def _kept(self, before: Note) -> bytes:
        """The bytes that were kept, if they are still what they were."""
        path = f"{self._folder}/{before['kept']}"
        if not _same(file_digest(self._host, path), before):
            raise Refusal("the bytes that were kept for this are damaged or gone (was its session deleted?)")
        return read_file(self._host, path)

    def folder(self, note: Note) -> None:
        """One that the repair made goes if nothing else lies in it; one that it took away comes back with its mode."""
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
        # An undo that died may have made it, and not come to its mode.
        if made or (now is not None and now.mode == FOLDER_MODE and not host.names(path)):
            host.set_mode(path, before)
            host.sync_folder(os.path.dirname(path))

    def mode(self, note: Note) -> None:
        now = self._host.stat(note["mode"])
        if now is None:
            raise Refusal("it no longer exists")
        if now.mode == note["before"]:
            return
        if now.mode != note["after"]:
            raise Refusal("its mode has changed since the repair")
        self._host.set_mode(note["mode"], note["before"])

    # -- journals

    def journal(self, note: Note) -> None:
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
                self._only_ours(folder, number, 0, frames)
            if before is None:
                self._will_take(note["journal"], frames)
                self._remove(folder, newer, handle, note.get("stood"))
                self._tell_witness(note["journal"], note.get("session", ""))
                return
            tail = None if before.get("cold") else self._checked_end(folder, before, frames)
            self._will_take(note["journal"], frames)
            self._remove_parts(folder, newer)
            if not before.get("cold"):
                self._cut_back(folder, before, tail)
            if self._host.end(handle) != before["lock"]:
                self._host.cut(handle, before["lock"])
            self._tell_witness(note["journal"], note.get("session", ""))

    def _tell_witness(self, journal: str, session: str) -> None:
        """What was taken off is not lost, and the journal ends where it did before. (`taken.json` says so if this can't.)"""
        with suppress(OSError, DreamkeepError):
            taken = self.taken.get(journal, set())
            seen = witness.load(self._host, self._root).seen.get(journal, ())
            if not any(one.frame in taken for one in seen):
                return
            witness.drop(self._host, self._root, journal, taken)
            end = survey(self._host, f"{self._root}/{journal}").position
            if end.seq:
                witness.note(self._host, self._root, [witness.Sighting(journal, session, *end)])

    def witness(self, note: Note) -> None:
        witness.put_back(self._host, self._root, [witness.Sighting(*one) for one in note["seen"]])

    def _will_take(self, journal: str, frames: list[tuple[int, str]]) -> None:
        """Said first: whoever has read these frames meanwhile must not call them lost, also if this undo dies."""
        if not frames:
            return
        self.taken.setdefault(journal, set()).update(frames)
        with suppress(OSError):  # on a full disk it can't be said, and to take something off is just what helps
            note_taken(self._host, self._root, self._id, self.taken)

    @contextmanager
    def _locked(self, folder: str) -> Iterator[int]:
        handle = self._host.open_lock(f"{folder}/{parts.LOCK}")
        try:
            lock(self._host, handle, where=folder, wait_s=_WAIT_S)
            yield handle
        finally:
            self._host.close(handle)

    def _checked_end(self, folder: str, before: Note, frames: list[tuple[int, str]]) -> bytes:
        """What stood after the last good frame (perhaps nothing); and that the part can be brought back to that. `frames`: what
        follows there is added."""
        path = f"{folder}/{parts.name(before['part'])}"
        if self._host.stat(path) is None:
            raise Refusal("the part has been compressed since the repair")
        if crc_of(self._host, path, before["size"]) != before["crc"]:
            raise Refusal("what was there before the repair no longer exists")
        tail = self._kept(before["tail"]) if "tail" in before else b""
        at = before["size"]
        there = self._after(path, at, len(tail) + 1)
        if tail.startswith(there):
            return tail  # all that is there is the end that was noted: also where the repair had to go on in a new part
        if there.startswith(tail) and not self._is_frame(folder, before["part"], at):
            at += len(tail)  # the disk was full, so that it was not cut, and the repair went on behind it
        self._only_ours(folder, before["part"], at, frames)
        return tail

    def _is_frame(self, folder: str, number: int, offset: int) -> bool:
        if parts.is_cold(self._host, folder, number):
            return False
        with parts.stream(self._host, folder, number, offset) as source:
            return parse(source.readline(parts.LONGEST_LINE).removesuffix(b"\n")) is not None

    def _after(self, path: str, offset: int, size: int) -> bytes:
        handle = self._host.open_read(path)
        try:
            return self._host.read(handle, size, offset)
        finally:
            self._host.close(handle)

    def _only_ours(self, folder: str, number: int, offset: int, frames: list[tuple[int, str]]) -> None:
        """Everything from there on is frames of this repair, or a piece of an append that nobody was promised. `frames`: to these
        they are added."""
        if parts.is_cold(self._host, folder, number):
            raise Refusal("the part has been compressed since the repair")
        at = offset
        with parts.stream(self._host, folder, number, offset) as source:
            while line := source.readline(parts.LONGEST_LINE):
                frame = parse(line.removesuffix(b"\n"))
                if frame is None and line.strip():
                    rest = source.read(_BLOCK)
                    if rest or number != parts.numbers(self._host, folder)[-1]:
                        raise Refusal("it holds something that the repair did not write")
                    self._set_aside(folder, Tail(number, at, len(line), whole=False))
                    return
                if frame and not self._is_ours(frame["id"].partition(".")[0]):
                    raise Refusal("the journal has grown since the repair")
                if frame:
                    frames.append((frame["seq"], frame["crc"]))
                at += len(line)

    def _is_ours(self, id: str) -> bool:
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

    def _cut_back(self, folder: str, before: Note, tail: bytes | None) -> None:
        path = f"{folder}/{parts.name(before['part'])}"
        tail = tail or b""
        there = self._after(path, before["size"], len(tail) + 1)
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

    def _remove(self, folder: str, newer: list[int], handle: int, stood: int | None) -> None:
        """A journal that the repair began. `stood`: how long the lock was in the folder that was there already (-1: there was
        none); None where there was no folder."""
        self._remove_parts(folder, newer)
        if stood is not None and stood >= 0:
            self._host.cut(handle, stood)
            return
        self._host.cut(handle, 0)
        self._host.remove(f"{folder}/{parts.LOCK}")
        if stood is None and not self._host.names(folder):
            self._host.remove_folder(folder)
            self._host.sync_folder(os.path.dirname(folder))


def _same(now: Note | None, then: Note | None) -> bool:
    return now == then or (now is not None and then is not None and now["sha256"] == then["sha256"])
