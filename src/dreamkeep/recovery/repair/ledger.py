"""The ledger of one repair: what was there is kept and durable before anything is changed.

    aside/repair-<undo id>/undo.json       what was done, one JSON object a line, each synced before the act it speaks of
    aside/repair-<undo id>/<whose>.<n>      the bytes that were there, named by the session they belong to ("shared": by none)
    aside/repair-<undo id>/taken.json      the frames that its undo took off journals

Five kinds of line, by what they name: `file` (its bytes before, and what they will be), `folder` (its mode; null where there is
none), `mode`, `journal` (how long it was; the unfinished append at its end), `witness` (a journal, and frames that it was seen to
hold and that nobody misses any more). What lies in the keep is named from there: a keep may be moved, or copied, and an undo must
not reach out of it to where it once was. A line `{"void":n}` takes one back: nothing was done. All frames that a repair writes
have ids that end as its own id does, so that what it appended is known again without further notes, also when it died in between
(`undo.py`).
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from dreamkeep.recovery.repair.mending import MENDED, MendResult, left

ASIDE = "aside"
PREFIX = "repair-"
NOTES = "undo.json"
TAKEN = "taken.json"
SHARED = "shared"
_BLOCK = 1 << 20
_WAIT_S = 60.0
_TRIES = 3
_MARK = 15  # hexadecimal digits of chance in an id
_CHANGED = "it changed during the repair; run the repair again"

Note = dict[str, Any]
#: What of a note names a file or a folder.
_PATHS = ("file", "folder", "mode", "temp")
#: Where the path of something in a keep goes on after the keep's own.
_IN_A_KEEP = re.compile(r"/(?=(?:journal|spool|aside|pages|state)/|(?:index\.sqlite|keep\.toml)$)")
#: By journal, frames by their seq and checksum.
Taken = dict[str, set[tuple[int, str]]]


def mark_of(undo_id: str) -> str:
    """The end of an id that all frames of that repair share."""
    return undo_id.replace("-", "")[-_MARK:]


def marked_ids(host: Host, undo_id: str) -> Ids:
    # Ids are a clock that never goes back and some chance; here the chance is the same for all.
    return Ids(host.now, lambda count: bytes.fromhex(mark_of(undo_id) * 2 * (count // _MARK)))


class Ledger:
    """Nothing is made on disk before the first thing is noted. `faults`: what is being mended, for whoever reads the notes."""

    def __init__(self, host: Host, root: str, undo_id: str) -> None:
        self._host = host
        self._root = root
        self.id = undo_id
        self.folder = f"{root}/{ASIDE}/{PREFIX}{undo_id}"
        self._handle = -1
        #: Where the last whole note ends.
        self._end = 0
        self._count = 0
        self._copied: dict[str, int] = {}
        #: What was made anew for the whole keep, once in a repair.
        self.made: set[str] = set()
        self.fault = ""

    @property
    def used(self) -> bool:
        return self._count > 0

    def finish(self) -> None:
        """Nothing was left half-way, so nobody needs to look for it."""
        if self.used:
            self.note({"finished": True})

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            self._host.close(handle)

    # -- files

    def publish(self, path: str, data: bytes, *, session: str = "") -> MendResult:
        """Create-or-fail: a file that appears meanwhile is left alone."""
        temp = self._temp(path)
        n = self.note({"file": path, "before": None, "after": _digest(data), "session": session, "temp": temp})
        write_new(self._host, temp, [data])
        try:
            self._host.link(temp, path)
        except FileExistsError:
            self.void(n)
            return left("something else has appeared there")
        finally:
            self._host.remove(temp)
            self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def replace(self, path: str, data: bytes, *, seen: Stat | None = None, session: str = "") -> MendResult:
        """Atomically, with the mode it had. `seen`: how the file looked when the new bytes were made of it."""
        path = self._host.real_path(path)
        kept = self._kept(path, seen, session)
        if kept is None:
            return left(_CHANGED)
        before, looked = kept
        if before["sha256"] == _digest(data)["sha256"]:
            return MENDED
        temp = self._temp(path)
        n = self.note({"file": path, "before": before, "after": _digest(data), "session": session, "temp": temp})
        write_new(self._host, temp, [data], like=path)
        if self._host.stat(path) != looked:
            self._host.remove(temp)
            self.void(n)
            return left(_CHANGED)
        self._host.replace(temp, path)
        self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def remove(self, path: str, *, seen: Stat | None = None, session: str = "") -> MendResult:
        """Out of the way: its bytes are in the ledger from then on."""
        kept = self._kept(path, seen, session)
        if kept is None:
            return MENDED if self._host.stat(path) is None else left(_CHANGED)
        before, looked = kept
        n = self.note({"file": path, "before": before, "after": None, "session": session})
        if self._host.stat(path) != looked:
            self.void(n)
            return left(_CHANGED)
        self._host.remove(path)
        self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def about_to_change(self, paths: Sequence[str]) -> Callable[[], None]:
        """For files that somebody else rewrites (SQLite, a cache): call the answer when that is done; it notes how they are."""
        notes = [(self.keep_copy(path), path) for path in paths]

        def done() -> None:
            for n, path in notes:
                if n:
                    self.note({"settled": n, "after": file_digest(self._host, path)})

        return done

    def keep_copy(self, path: str, *, session: str = "") -> int:
        """Of a file that somebody else will change or remove; how it is then must be noted later. The note's number."""
        for _ in range(_TRIES):
            kept = self._kept(path, None, session)
            if kept or self._host.stat(path) is None:
                before = kept[0] if kept else None
                self._copied[path] = self.note({"file": path, "before": before, "after": "later", "session": session})
                return self._copied[path]
        return 0  # in use, and a view: what comes of it is not taken back

    def gone(self, paths: Sequence[str]) -> None:
        """Files that were kept are not there any more, and nobody else has them."""
        for path in paths:
            if self._host.stat(path) is None and self._copied.get(path):
                self.note({"settled": self._copied[path], "after": None})

    @contextmanager
    def removed_by_others(self, path: str, *, session: str = "") -> Iterator[None]:
        self.keep_copy(path, session=session)
        yield
        self.gone([path])

    # -- folders

    def make_folders(self, path: str) -> None:
        """Every folder down to `path` that is not there."""
        if self._host.stat(path) is not None:
            return
        self.make_folders(os.path.dirname(path))
        n = self.note({"folder": path, "before": None, "after": FOLDER_MODE})
        if not self._host.make_folder(path):
            self.void(n)  # somebody else was quicker: it is theirs
        self._host.sync_folder(os.path.dirname(path))

    def remove_folder(self, path: str) -> MendResult:
        """One that is empty by now."""
        found = self._host.stat(path)
        if found is None:
            return MENDED
        n = self.note({"folder": path, "before": found.mode, "after": None})
        try:
            self._host.remove_folder(path)
        except OSError as problem:
            self.void(n)
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return left(_CHANGED)
        self._host.sync_folder(os.path.dirname(path))
        return MENDED

    def set_mode(self, path: str, mode: int) -> MendResult:
        found = self._host.stat(path)
        if found is None:
            return left("it no longer exists")
        if found.mode != mode:
            self.note({"mode": path, "before": found.mode, "after": mode})
            self._host.set_mode(path, mode)
        return MENDED

    # -- journals

    def journal(self, session: str) -> None:
        """How a journal is before it is written to: noted under its lock, so that nobody is in the middle of an append."""
        folder = f"{self._root}/{folder_of(session) if session else KEEP}"
        about = {"journal": folder.removeprefix(f"{self._root}/"), "session": session}
        if self._host.stat(folder) is None:
            self.note({**about, "before": None})
            return
        locked = self._host.stat(f"{folder}/{parts.LOCK}") is not None
        handle = self._host.open_lock(f"{folder}/{parts.LOCK}")
        try:
            lock(self._host, handle, where=folder, wait_s=_WAIT_S)
            before = self._journal_now(folder, session)
            length = self._host.end(handle)
            # A folder whose parts are all gone is no journal, and stays when what the repair began there is taken back.
            stood = {"stood": length if locked else -1}
            self.note({**about, **({"before": {**before, "lock": length}} if before else {"before": None, **stood})})
        finally:
            self._host.close(handle)

    def drop_sightings(self, journal: str) -> None:
        """What that journal lost is here again, under other seqs: nobody shall miss it."""
        seen = witness.load(self._host, self._root).seen.get(journal, ())
        lost = [one for one in seen if not witness.is_there(self._host, self._root, one)]
        if lost:
            self.note({"witness": journal, "session": lost[0].session, "seen": [list(one) for one in lost]})
            witness.drop(self._host, self._root, journal, [one.frame for one in lost])

    def will_append(self, ids: Sequence[str]) -> None:
        """Events that keep their own ids: by this they are known again as this repair's."""
        if ids:
            self.note({"added": list(ids)})

    def _journal_now(self, folder: str, session: str) -> Note | None:
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
        found: Note = {"part": last, "size": good, "crc": crc_of(self._host, path, good)}
        return {**found, "tail": self._keep_tail(path, tail, session)} if good < size and tail else found

    def _keep_tail(self, path: str, tail: Tail, session: str) -> Note:
        handle = self._host.open_read(path)
        try:
            return self._copy(lambda at: self._host.read(handle, min(_BLOCK, tail.size - at), tail.offset + at), session)
        finally:
            self._host.close(handle)

    # -- on disk

    def note(self, what: Note) -> int:
        """Durable when this returns."""
        try:
            if self._handle < 0:
                make_folders(self._host, self.folder)
                self._handle = self._host.create(f"{self.folder}/{NOTES}")
                self._host.sync_folder(self.folder)
            if self._host.end(self._handle) > self._end:
                # Of a note that a full disk took only in part: what it spoke of was not begun, and nothing may stand behind it.
                self._host.cut(self._handle, self._end)
            self._count += 1
            about = {"n": self._count, **({"fault": self.fault} if self.fault else {}), **self._from_here(what)}
            line = json.dumps(about, ensure_ascii=True).encode() + b"\n"
            write_all(self._host, self._handle, line)
            self._host.sync(self._handle)
            self._end += len(line)
        except OSError as problem:
            raise from_os(problem, "recording what a repair will change", self.folder) from problem
        return self._count

    def void(self, n: int) -> None:
        self.note({"void": n})

    def _from_here(self, what: Note) -> Note:
        roots = (self._root, self._host.real_path(self._root))
        return {**what, **{key: _inside(roots, what[key]) for key in _PATHS if key in what}}

    def _kept(self, path: str, seen: Stat | None, session: str) -> tuple[Note, Stat] | None:
        """A copy of a file, and how the file looked; None when it is not (or not any more) what was seen."""
        looked = self._host.stat(path)
        if looked is None or (seen is not None and seen != looked):
            return None
        try:
            handle = self._host.open_read(path)
        except FileNotFoundError:
            return None
        try:
            kept = self._copy(lambda at: self._host.read(handle, _BLOCK, at), session)
        finally:
            self._host.close(handle)
        return ({**kept, "mode": looked.mode}, looked) if self._host.stat(path) == looked else None

    def _copy(self, read: Callable[[int], bytes], session: str) -> Note:
        make_folders(self._host, self.folder)
        name = f"{os.path.basename(folder_of(session)) if session else SHARED}.{self._host.random(6).hex()}"
        handle = self._host.create(f"{self.folder}/{name}")
        digest, at = sha256(), 0
        try:
            while block := read(at):
                write_all(self._host, handle, block)
                digest.update(block)
                at += len(block)
            self._host.sync(handle)
        finally:
            self._host.close(handle)
        self._host.sync_folder(self.folder)
        return {"kept": name, "size": at, "sha256": digest.hexdigest()}

    def _temp(self, path: str) -> str:
        """A name that nobody else has, noted before it is used: what a crash leaves is taken away by the next repair."""
        return f"{path}.{self._host.random(8).hex()}.tmp"


def _inside(roots: Sequence[str], path: str) -> str:
    """As it is called from the keep, where it lies there. `roots`: what the keep is called."""
    begin = next((root for root in roots if path == root or path.startswith(f"{root}/")), None)
    return path if begin is None else path[len(begin) + 1 :] or "."


def _located(host: Host, root: str, path: str) -> str:
    """Where something is that a note names. An older version named everything from the root of the disk. A repair only touches
    its own keep and agents' files, so what lies in another keep, or where no keep is any more, is what is now in this one."""
    if not os.path.isabs(path):
        return root if path == "." else os.path.join(root, path)
    if path == root or path.startswith(f"{root}/"):
        return path
    elsewhere = next((one for one in _above(path) if host.stat(f"{one}/{KEEP}") is not None), None)
    if elsewhere is None:
        begins = (path[: found.start()] for found in _IN_A_KEEP.finditer(path))
        elsewhere = next((one for one in begins if host.stat(one) is None), None)
    return path if elsewhere is None else f"{root}{path[len(elsewhere) :]}"


def _above(path: str) -> Iterator[str]:
    """The path itself and every folder above it, but for the root of the disk."""
    while path != "/":
        yield path
        path = os.path.dirname(path)


def _digest(data: bytes) -> Note:
    return {"size": len(data), "sha256": sha256(data).hexdigest()}


def file_digest(host: Host, path: str) -> Note | None:
    """None when there is no such file."""
    try:
        handle = host.open_read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    digest, at = sha256(), 0
    try:
        while block := host.read(handle, _BLOCK, at):
            digest.update(block)
            at += len(block)
    finally:
        host.close(handle)
    return {"size": at, "sha256": digest.hexdigest()}


def crc_of(host: Host, path: str, size: int) -> int:
    """Of the first `size` bytes; -1 when there are fewer."""
    handle = host.open_read(path)
    crc = at = 0
    try:
        while at < size:
            block = host.read(handle, min(_BLOCK, size - at), at)
            if not block:
                return -1
            crc = crc32(block, crc)
            at += len(block)
    finally:
        host.close(handle)
    return crc


def folders(host: Host, root: str) -> list[str]:
    """The ids of all repairs that may be undone, oldest first."""
    try:
        return sorted(name.removeprefix(PREFIX) for name in host.names(f"{root}/{ASIDE}") if name.startswith(PREFIX))
    except FileNotFoundError:
        return []


def notes(host: Host, root: str, undo_id: str) -> list[Note]:
    """What stands in a ledger. A last line that was not finished says nothing: what it spoke of was not begun. ValueError when
    another can't be read: somebody else was at it, and what it says counts for nothing."""
    path = f"{root}/{ASIDE}/{PREFIX}{undo_id}/{NOTES}"
    if host.stat(path) is None:
        return []
    found = []
    for line in read_file(host, path).split(b"\n")[:-1]:
        note = json.loads(line)
        if not isinstance(note, dict) or not isinstance(note.get("n"), int):
            raise ValueError("a line that no repair wrote")
        found.append({**note, **{key: _located(host, root, note[key]) for key in _PATHS if isinstance(note.get(key), str)}})
    return found


def note_taken(host: Host, root: str, undo_id: str, taken: Taken) -> None:
    """An undo is about to take these frames off journals: nobody has lost them then, whoever has read them. Durable when this
    returns. In a file of its own: what is added to the notes may be garbage after a power cut, and they must stay readable."""
    frames = {journal: sorted(found) for journal, found in sorted(taken.items())}
    replace_file(host, f"{root}/{ASIDE}/{PREFIX}{undo_id}/{TAKEN}", json.dumps(frames).encode())


def taken_off(host: Host, root: str, undo_id: str) -> Taken:
    """By journal, the frames that an undo took off, or was about to."""
    path = f"{root}/{ASIDE}/{PREFIX}{undo_id}/{TAKEN}"
    try:
        found = json.loads(read_file(host, path)) if host.stat(path) is not None else {}
        return {journal: {(seq, crc) for seq, crc in frames} for journal, frames in found.items()}
    except (ValueError, TypeError, AttributeError, OSError):
        return {}  # nobody of ours wrote this


def all_taken_off(host: Host, root: str) -> Taken:
    """The same of all repairs."""
    taken: Taken = {}
    for undo_id in folders(host, root):
        for journal, frames in taken_off(host, root, undo_id).items():
            taken.setdefault(journal, set()).update(frames)
    return taken


def sweep_temps(host: Host, root: str) -> None:
    """Temporary files of repairs that died in between."""
    for undo_id in folders(host, root):
        try:
            found = notes(host, root, undo_id)
        except (ValueError, OSError):
            continue  # whoever wants to undo that one is told
        if found and "finished" not in found[-1]:
            for temp in (note["temp"] for note in found if "temp" in note):
                if host.stat(temp) is not None:
                    host.remove(temp)


class NotedJournals(JournalWriters):
    """The journals of a keep, each noted in the ledger before the first writer of it is made: opening one may settle it."""

    def __init__(self, host: Host, root: str, ids: Ids, ledger: Ledger, mask: Callable[[Event], Event] | None = None) -> None:
        # The witness is left to the indexer: what is undone at once was never seen.
        super().__init__(host, root, ids, mask=mask, witness=False)
        self._ledger = ledger

    def _new(self, session: str) -> Writer:
        self._ledger.journal(session)
        return super()._new(session)
