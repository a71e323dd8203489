"""The ledger of one repair: it keeps the previous state, durably, before anything is changed.

    aside/repair-<undo id>/undo.json            the notes: one JSON object a line, each synced before the act it describes
    aside/repair-<undo id>/<session>.<random>   earlier bytes, named after the session they belong to ("shared" for none)
    aside/repair-<undo id>/taken.json           the frames that an undo of it took off journals

The kinds of note, by the member that names the thing: `file` (its bytes before and after), `folder` (its mode; null where there
is none), `mode`, `journal` (its length; the unfinished append at its end), `witness` (a journal, and frames it was seen to hold
that nobody misses any more). A note `{"void":n}` cancels note n: nothing was done. Paths inside the keep are stored relative to
it, because a keep may be moved or copied, and an undo must not reach into its earlier place.

All frames that a repair writes have ids that end as its own id does. So undo recognises what it appended without further notes,
even if the repair died halfway (`undo.py`).
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any
from zlib import crc32

from dreamkeep.errors import from_os
from dreamkeep.event import Event, Ids
from dreamkeep.host import FOLDER_MODE, Host, Stat, lock, make_folders, read_file, replace_file, write_all, write_new
from dreamkeep.journal import parts, witness
from dreamkeep.journal.open_state import survey
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Tail
from dreamkeep.journal.writer import Writer
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.faults import MENDED, MendResult, not_mended

ASIDE = "aside"
PREFIX = "repair-"
NOTES = "undo.json"
TAKEN = "taken.json"
SHARED = "shared"
BLOCK = 1 << 20
LOCK_WAIT_S = 60.0
_TRIES = 3
_MARK = 15  # hexadecimal digits of chance in an id
_CHANGED = "it changed during the repair; run the repair again"

Note = dict[str, Any]
#: The members of a note that name a file or a folder.
_PATHS = ("file", "folder", "mode", "temp")
#: Where a path inside some keep begins to be relative to that keep.
_IN_A_KEEP = re.compile(r"/(?=(?:journal|spool|aside|pages|state)/|(?:index\.sqlite|keep\.toml)$)")
#: Frames by journal, each by its seq and checksum.
TakenFrames = dict[str, set[tuple[int, str]]]


def mark_of(undo_id: str) -> str:
    """The end that the ids of all frames of that repair share."""
    return undo_id.replace("-", "")[-_MARK:]


def marked_ids(host: Host, undo_id: str) -> Ids:
    # An id is a clock that never goes back and some chance; here the chance is the same for all.
    return Ids(host.now, lambda count: bytes.fromhex(mark_of(undo_id) * 2 * (count // _MARK)))


def ledger_folder(root: str, undo_id: str) -> str:
    return f"{root}/{ASIDE}/{PREFIX}{undo_id}"


class Ledger:
    """Nothing is created on disk before the first note."""

    def __init__(self, host: Host, root: str, undo_id: str) -> None:
        self._host = host
        self._root = root
        self.id = undo_id
        self.folder = ledger_folder(root, undo_id)
        self._handle = -1
        #: Where the last whole note ends.
        self._end = 0
        self._count = 0
        self._copied: dict[str, int] = {}
        #: Views that were rebuilt; each is rebuilt once in a repair.
        self.made: set[str] = set()
        #: The fault that is being mended; every note names it.
        self.fault = ""

    @property
    def used(self) -> bool:
        return self._count > 0

    def finish(self) -> None:
        """Nothing is half done, so nobody needs to look for temporary files."""
        if self.used:
            self.note({"finished": True})

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            self._host.close(handle)

    # -- files

    def publish(self, path: str, data: bytes, *, session: str = "") -> MendResult:
        """Create a file or fail: one that appears meanwhile is not touched."""
        temp = self._temp(path)
        n = self.note({"file": path, "before": None, "after": _digest(data), "session": session, "temp": temp})
        write_new(self._host, temp, [data])
        try:
            self._host.link(temp, path)
        except FileExistsError:
            self.void(n)
            return not_mended("something else has appeared there")
        finally:
            self._host.remove(temp)
            self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def replace(self, path: str, data: bytes, *, seen: Stat | None = None, session: str = "") -> MendResult:
        """Replace a file atomically and keep its mode. `seen`: how the file looked when the new bytes were made from it."""
        path = self._host.real_path(path)
        copy = self._keep_bytes(path, seen, session)
        if copy is None:
            return not_mended(_CHANGED)
        before, stat = copy
        if before["sha256"] == _digest(data)["sha256"]:
            return MENDED
        temp = self._temp(path)
        n = self.note({"file": path, "before": before, "after": _digest(data), "session": session, "temp": temp})
        write_new(self._host, temp, [data], like=path)
        if self._host.stat(path) != stat:
            self._host.remove(temp)
            self.void(n)
            return not_mended(_CHANGED)
        self._host.replace(temp, path)
        self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def remove(self, path: str, *, session: str = "") -> MendResult:
        """Remove a file; the ledger has its bytes from then on."""
        copy = self._keep_bytes(path, None, session)
        if copy is None:
            return MENDED if self._host.stat(path) is None else not_mended(_CHANGED)
        before, stat = copy
        n = self.note({"file": path, "before": before, "after": None, "session": session})
        if self._host.stat(path) != stat:
            self.void(n)
            return not_mended(_CHANGED)
        self._host.remove(path)
        self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def about_to_change(self, paths: Sequence[str]) -> Callable[[], None]:
        """For files that other code rewrites (SQLite, a cache). Call the answer afterwards: it notes what became of them."""
        notes = [(self.keep_copy(path), path) for path in paths]

        def note_result() -> None:
            for n, path in notes:
                if n:
                    self.note({"settled": n, "after": file_digest(self._host, path)})

        return note_result

    def keep_copy(self, path: str, *, session: str = "") -> int:
        """Keep a file that other code will change or remove; the result must be noted later. Returns the note's number."""
        for _ in range(_TRIES):
            copy = self._keep_bytes(path, None, session)
            if copy or self._host.stat(path) is None:
                self._copied[path] = self.note(
                    {"file": path, "before": copy[0] if copy else None, "after": "later", "session": session}
                )
                return self._copied[path]
        return 0  # it is in use, and a view: undo doesn't bring it back

    def note_removed(self, paths: Sequence[str]) -> None:
        """Of files that were kept: those that no longer exist were removed by this repair."""
        for path in paths:
            if self._host.stat(path) is None and self._copied.get(path):
                self.note({"settled": self._copied[path], "after": None})

    # -- folders

    def make_folders(self, path: str) -> None:
        """Make a folder and whatever is missing above it."""
        if self._host.stat(path) is not None:
            return
        self.make_folders(os.path.dirname(path))
        n = self.note({"folder": path, "before": None, "after": FOLDER_MODE})
        if not self._host.make_folder(path):
            self.void(n)  # another process made it first, so it is not ours to undo
        self._host.sync_folder(os.path.dirname(path))

    def remove_folder(self, path: str) -> MendResult:
        """Remove an empty folder."""
        stat = self._host.stat(path)
        if stat is None:
            return MENDED
        n = self.note({"folder": path, "before": stat.mode, "after": None})
        try:
            self._host.remove_folder(path)
        except OSError as problem:
            self.void(n)
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return not_mended(_CHANGED)
        self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def set_mode(self, path: str, mode: int) -> MendResult:
        stat = self._host.stat(path)
        if stat is None:
            return not_mended("it no longer exists")
        if stat.mode != mode:
            self.note({"mode": path, "before": stat.mode, "after": mode})
            self._host.set_mode(path, mode)
        return MENDED

    # -- journals

    def journal(self, session: str) -> None:
        """Note how a journal is before it is written to. Done under its lock, so that nobody is in the middle of an append."""
        folder = f"{self._root}/{folder_of(session) if session else KEEP}"
        note: Note = {"journal": folder.removeprefix(f"{self._root}/"), "session": session}
        if self._host.stat(folder) is None:
            self.note({**note, "before": None})
            return
        had_lock = self._host.stat(f"{folder}/{parts.LOCK}") is not None
        handle = self._host.open_lock(f"{folder}/{parts.LOCK}")
        try:
            lock(self._host, handle, where=folder, wait_s=LOCK_WAIT_S)
            before = self._journal_state(folder, session)
            length = self._host.end(handle)
            if before:
                self.note({**note, "before": {**before, "lock": length}})
            else:
                # A folder whose parts are all gone is no journal; it stays when undo takes off what the repair began there.
                self.note({**note, "before": None, "stood": length if had_lock else -1})
        finally:
            self._host.close(handle)

    def drop_sightings(self, journal: str) -> None:
        """What that journal lost is back under other seqs, so the witness must not miss it."""
        seen = witness.load(self._host, self._root).seen.get(journal, ())
        lost = [sighting for sighting in seen if not witness.is_there(self._host, self._root, sighting)]
        if lost:
            self.note({"witness": journal, "session": lost[0].session, "seen": [list(sighting) for sighting in lost]})
            witness.drop(self._host, self._root, journal, [sighting.frame for sighting in lost])

    def will_append(self, ids: Sequence[str]) -> None:
        """Events that keep their own ids: undo recognises them as this repair's by this note."""
        if ids:
            self.note({"added": list(ids)})

    def _journal_state(self, folder: str, session: str) -> Note | None:
        numbers = parts.numbers(self._host, folder)
        if not numbers:
            return None
        last = numbers[-1]
        if parts.is_cold(self._host, folder, last):
            return {"part": last, "cold": True}
        path = f"{folder}/{parts.name(last)}"
        size = (self._host.stat(path) or Stat(0, 0, 0, 0, False, 0)).size
        tail = survey(self._host, folder).tail
        good = tail.offset if tail and not tail.whole else size
        state: Note = {"part": last, "size": good, "crc": crc_of(self._host, path, good)}
        if tail and good < size:
            state["tail"] = self._keep_tail(path, tail, session)
        return state

    # -- on disk

    def note(self, note: Note) -> int:
        """Add a note and return its number; it is durable then."""
        try:
            if self._handle < 0:
                make_folders(self._host, self.folder)
                self._handle = self._host.create(f"{self.folder}/{NOTES}")
                self._host.sync_folder(self.folder)
            if self._host.end(self._handle) > self._end:
                # A full disk took a note only in part. Its act was not begun, and no note may follow a torn one.
                self._host.cut(self._handle, self._end)
            self._count += 1
            numbered = {"n": self._count, **({"fault": self.fault} if self.fault else {}), **self._relative(note)}
            line = json.dumps(numbered, ensure_ascii=True).encode() + b"\n"
            write_all(self._host, self._handle, line)
            self._host.sync(self._handle)
            self._end += len(line)
        except OSError as problem:
            raise from_os(problem, "recording what a repair will change", self.folder) from problem
        return self._count

    def void(self, n: int) -> None:
        self.note({"void": n})

    def _relative(self, note: Note) -> Note:
        roots = (self._root, self._host.real_path(self._root))
        return {**note, **{key: _relative_to(roots, note[key]) for key in _PATHS if key in note}}

    def _keep_bytes(self, path: str, seen: Stat | None, session: str) -> tuple[Note, Stat] | None:
        """Copy a file; returns the copy's note and how the file looked. None when it is missing or not (any more) as seen."""
        stat = self._host.stat(path)
        if stat is None or (seen is not None and seen != stat):
            return None
        try:
            handle = self._host.open_read(path)
        except FileNotFoundError:
            return None
        try:
            copy = self._copy(read_blocks(self._host, handle), session)
        finally:
            self._host.close(handle)
        return ({**copy, "mode": stat.mode}, stat) if self._host.stat(path) == stat else None

    def _keep_tail(self, path: str, tail: Tail, session: str) -> Note:
        handle = self._host.open_read(path)
        try:
            return self._copy(read_blocks(self._host, handle, tail.offset, tail.size), session)
        finally:
            self._host.close(handle)

    def _copy(self, blocks: Iterator[bytes], session: str) -> Note:
        make_folders(self._host, self.folder)
        name = f"{os.path.basename(folder_of(session)) if session else SHARED}.{self._host.random(6).hex()}"
        handle = self._host.create(f"{self.folder}/{name}")
        digest, size = sha256(), 0
        try:
            for block in blocks:
                write_all(self._host, handle, block)
                digest.update(block)
                size += len(block)
            self._host.sync(handle)
        finally:
            self._host.close(handle)
        self._host.sync_folder(self.folder)
        return {"kept": name, "size": size, "sha256": digest.hexdigest()}

    def _temp(self, path: str) -> str:
        """A unique name, noted before it is used: the next repair removes what a crash leaves."""
        return f"{path}.{self._host.random(8).hex()}.tmp"


class NotedJournals(JournalWriters):
    """A keep's journals. Each is noted in the ledger before its first writer is made, because opening one may settle it."""

    def __init__(self, host: Host, root: str, ids: Ids, ledger: Ledger, mask: Callable[[Event], Event] | None = None) -> None:
        # The witness is left to the indexer: what is undone at once was never seen.
        super().__init__(host, root, ids, mask=mask, witness=False)
        self._ledger = ledger

    def _new(self, session: str) -> Writer:
        self._ledger.journal(session)
        return super()._new(session)


# -- paths in notes


def _relative_to(roots: Sequence[str], path: str) -> str:
    """A path inside the keep relative to it; any other as it is. `roots`: the names of the keep's folder."""
    root = next((root for root in roots if path == root or path.startswith(f"{root}/")), None)
    return path if root is None else path[len(root) + 1 :] or "."


def _resolve(host: Host, root: str, path: str) -> str:
    """Where the thing is that a note names. Older versions stored absolute paths. A repair touches only its own keep and agents'
    files, so a path inside another keep, or inside a keep that no longer exists, means the same place in this one."""
    if not os.path.isabs(path):
        return root if path == "." else os.path.join(root, path)
    if path == root or path.startswith(f"{root}/"):
        return path
    elsewhere = next((above for above in _and_above(path) if host.stat(f"{above}/{KEEP}") is not None), None)
    if elsewhere is None:
        possible = (path[: match.start()] for match in _IN_A_KEEP.finditer(path))
        elsewhere = next((folder for folder in possible if host.stat(folder) is None), None)
    return path if elsewhere is None else f"{root}{path[len(elsewhere) :]}"


def _and_above(path: str) -> Iterator[str]:
    """The path and every folder above it, except the root of the disk."""
    while path != "/":
        yield path
        path = os.path.dirname(path)


# -- bytes


def read_blocks(host: Host, handle: int, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
    """The bytes from `offset` on: `size` of them, or all."""
    at = 0
    while block := host.read(handle, BLOCK if size is None else min(BLOCK, size - at), offset + at):
        yield block
        at += len(block)


def _digest(data: bytes) -> Note:
    return {"size": len(data), "sha256": sha256(data).hexdigest()}


def file_digest(host: Host, path: str) -> Note | None:
    """None when there is no such file."""
    try:
        handle = host.open_read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    digest, size = sha256(), 0
    try:
        for block in read_blocks(host, handle):
            digest.update(block)
            size += len(block)
    finally:
        host.close(handle)
    return {"size": size, "sha256": digest.hexdigest()}


def crc_of(host: Host, path: str, size: int) -> int:
    """Of the first `size` bytes; -1 when there are fewer."""
    handle = host.open_read(path)
    crc = at = 0
    try:
        for block in read_blocks(host, handle, 0, size):
            crc = crc32(block, crc)
            at += len(block)
    finally:
        host.close(handle)
    return crc if at == size else -1


# -- all ledgers of a keep


def repair_ids(host: Host, root: str) -> list[str]:
    """The ids of all repairs that may be undone, oldest first."""
    try:
        return sorted(name.removeprefix(PREFIX) for name in host.names(f"{root}/{ASIDE}") if name.startswith(PREFIX))
    except FileNotFoundError:
        return []


def read_notes(host: Host, root: str, undo_id: str) -> list[Note]:
    """The notes of a repair. An unfinished last line doesn't count: its act was not begun. ValueError when another line can't be
    read: somebody else changed the file, and none of it can be trusted."""
    path = f"{ledger_folder(root, undo_id)}/{NOTES}"
    if host.stat(path) is None:
        return []
    notes = []
    for line in read_file(host, path).split(b"\n")[:-1]:
        note = json.loads(line)
        if not isinstance(note, dict) or not isinstance(note.get("n"), int):
            raise ValueError("a line that no repair wrote")
        notes.append({**note, **{key: _resolve(host, root, note[key]) for key in _PATHS if isinstance(note.get(key), str)}})
    return notes


def note_taken_frames(host: Host, root: str, undo_id: str, taken: TakenFrames) -> None:
    """An undo is about to take these frames off journals, so whoever has read them must not call them lost. Durable when this
    returns. They have a file of their own: a power cut may garble what was appended, and the notes must stay readable."""
    frames = {journal: sorted(found) for journal, found in sorted(taken.items())}
    replace_file(host, f"{ledger_folder(root, undo_id)}/{TAKEN}", json.dumps(frames).encode())


def read_taken_frames(host: Host, root: str, undo_id: str) -> TakenFrames:
    """The frames that an undo took off, or was about to."""
    path = f"{ledger_folder(root, undo_id)}/{TAKEN}"
    try:
        found = json.loads(read_file(host, path)) if host.stat(path) is not None else {}
        return {journal: {(seq, crc) for seq, crc in frames} for journal, frames in found.items()}
    except (ValueError, TypeError, AttributeError, OSError):
        return {}  # not written by dreamkeep


def read_all_taken_frames(host: Host, root: str) -> TakenFrames:
    taken: TakenFrames = {}
    for undo_id in repair_ids(host, root):
        for journal, frames in read_taken_frames(host, root, undo_id).items():
            taken.setdefault(journal, set()).update(frames)
    return taken


def sweep_temps(host: Host, root: str) -> None:
    """Remove temporary files of repairs that died."""
    for undo_id in repair_ids(host, root):
        try:
            notes = read_notes(host, root, undo_id)
        except (ValueError, OSError):
            continue  # reported to whoever wants to undo that repair
        if notes and "finished" not in notes[-1]:
            for temp in (note["temp"] for note in notes if "temp" in note):
                if host.stat(temp) is not None:
                    host.remove(temp)
