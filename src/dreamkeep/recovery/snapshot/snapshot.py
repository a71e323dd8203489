"""A keep as one file: `export`, `verify`, and the reader that an import uses. `docs/snapshot.md` describes the file.

    dreamkeep-snapshot.json   the format and the keep's id; first, so that an older program can refuse
    spool/…                   hook calls not yet journaled
    keep.toml                 settings
    journal/…                 every part, uncompressed, byte for byte: the truth
    aside/… pages/…           what was set aside; pages
    view/AGENT/….md           each session for people to read; never imported
    manifest.json             names, sizes and digests of everything; last, so that a truncated file shows

Caches, locks and the index are not in it: they are rebuilt.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from dreamkeep.capture.hooks.drain import LOCK as DRAINING
from dreamkeep.capture.hooks.spool import SPOOL
from dreamkeep.errors import BadUsage, DreamkeepError, Failed, from_os
from dreamkeep.event import Kind
from dreamkeep.host import Host, lock, write_all
from dreamkeep.journal import parts
from dreamkeep.journal.places import KEEP, SESSIONS
from dreamkeep.journal.reader import Reading
from dreamkeep.recovery.repair.movable import is_link
from dreamkeep.recovery.snapshot.file import BadEntry, DamagedEntry, Header, Packer, Unpacker

FORMAT = 1
ABOUT = "dreamkeep-snapshot.json"
MANIFEST = "manifest.json"
TOML = "keep.toml"
VIEW = "view"
PAGES = "pages"
#: Folders whose files are copied as they are.
FOLDERS = ("aside", SPOOL, PAGES)
_BLOCK = 1 << 20
#: The largest size of our own two entries, which are read into memory.
_LARGEST = 256 << 20
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_WAIT_S = 60.0

#: (done, total)
Progress = Callable[[int, int], None]
#: For a journal's folder: a name and a page for people; None when there is nothing to show.
MakePage = Callable[[str], "tuple[str, str] | None"]


class SnapshotCounts(NamedTuple):
    """What a snapshot has in it. `digest`: of its manifest, and so of everything."""

    sessions: int = 0
    parts: int = 0
    files: int = 0
    bytes: int = 0
    digest: str = ""


class VerifyResult(NamedTuple):
    counts: SnapshotCounts
    about: Mapping[str, Any]
    bad: Sequence[BadEntry]

    @property
    def ok(self) -> bool:
        return not self.bad


# -- export


class ExportResult(NamedTuple):
    """`problems`: what could not be read, so it is missing or not whole."""

    counts: SnapshotCounts
    problems: Sequence[BadEntry]


def export(
    host: Host, root: str, path: str, view: MakePage | None, progress: Progress | None = None, lost: Sequence[BadEntry] = ()
) -> ExportResult:
    """`view`: makes the page of a session; None for a snapshot without pages. `lost`: what is known to be missing from the
    keep."""
    _check_place(host, root, path)
    temp = f"{path}.{host.random(8).hex()}.tmp"
    try:
        handle = host.create(temp)
    except OSError as problem:
        raise _no_place(problem, path) from problem
    try:
        try:
            work = _Export(host, root, view, Packer(lambda data: write_all(host, handle, data)), progress, lost)
            counts = work.run()
            host.sync(handle)
        finally:
            host.close(handle)
        _publish(host, temp, path)
        host.sync_folder(_above(path))
    except BaseException as problem:
        _discard(host, temp)
        if isinstance(problem, FileExistsError):
            raise _taken(path) from problem
        if isinstance(problem, OSError):
            raise from_os(problem, "writing the snapshot", path) from problem
        raise
    return ExportResult(counts, work.problems)


def _check_place(host: Host, root: str, path: str) -> None:
    """Not inside the keep: the file would have what is deleted there later, and the next snapshot would have this one in it."""
    folder = _above(path)
    try:
        at, is_taken = host.stat(folder), host.stat(path) is not None
    except OSError as problem:
        raise _no_place(problem, path) from problem
    if is_taken:
        raise _taken(path)
    if at is None or not at.is_folder:
        raise BadUsage("no such folder", where=folder, next="Create it first, or choose another.")
    if f"{host.real_path(folder)}/".startswith(f"{host.real_path(root)}/"):
        raise BadUsage("a snapshot can't be inside the keep", where=path, next="Choose another folder.")


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _taken(path: str) -> BadUsage:
    return BadUsage("a file of that name already exists", where=path, next="Choose another name, or remove that file.")


def _no_place(problem: OSError, path: str) -> DreamkeepError:
    if problem.errno in _REFUSED:
        return BadUsage(f"can't create a file there ({problem.strerror})", where=path, next="Choose another folder or name.")
    return from_os(problem, "making the snapshot", path)


def _publish(host: Host, temp: str, path: str) -> None:
    """Create the file or fail, also on a disk where no file can have two names (a USB stick, some network disks)."""
    try:
        host.link(temp, path)
        host.remove(temp)
        return
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
    host.close(host.create(path))  # the name is ours now, so no other file is replaced
    try:
        host.replace(temp, path)
    except OSError:
        host.remove(path)
        raise


def _discard(host: Host, path: str) -> None:
    try:
        host.remove(path)
    except OSError:
        pass  # it has its final name already, or the disk failed; the name says what it is


class _End(NamedTuple):
    """Where the export of a journal ends: its last part, and that part's size (None: all of it)."""

    part: int
    size: int | None


class _Export:
    def __init__(
        self, host: Host, root: str, view: MakePage | None, packer: Packer, progress: Progress | None, lost: Sequence[BadEntry]
    ) -> None:
        self._host = host
        self._root = root
        self._view = view
        self._packer = packer
        self._progress = progress
        self._listed: list[Header] = []
        self.problems: list[BadEntry] = list(lost)

    def run(self) -> SnapshotCounts:
        journals = [KEEP, *session_folders(self._host, self._root)]
        self._add_bytes(ABOUT, _json({"format": FORMAT, "keep": keep_id(self._host, self._root)}))
        with self._nobody_drains():
            # At one moment, so that a hook call is in the spool or in a journal, never in both or in none.
            self._add_files(SPOOL)
            ends = {journal: self._end(journal) for journal in journals}
        if self._host.stat(f"{self._root}/{TOML}"):
            self._add_file(TOML)
        for n, journal in enumerate(journals):
            self._add_journal(journal, ends[journal])
            if self._progress:
                self._progress(n + 1, len(journals))
        for folder in FOLDERS:
            if folder != SPOOL:
                self._add_files(folder)
        if self._view:
            for journal in journals[1:]:
                if page := self._view(journal):
                    self._add_bytes(f"{VIEW}/{page[0]}", page[1].encode("utf-8", "surrogatepass"))
        manifest = _manifest(self._listed, self.problems)
        counts = _count(self._listed, hashlib.sha256(manifest).hexdigest())
        self._add_bytes(MANIFEST, manifest)
        self._packer.end()
        return counts

    @contextmanager
    def _nobody_drains(self) -> Iterator[None]:
        path = f"{self._root}/{DRAINING}"
        try:
            handle = self._host.open_read(path)
        except FileNotFoundError:
            yield  # nobody ever drained here
            return
        try:
            lock(self._host, handle, where=path, wait_s=_WAIT_S, shared=True)
            yield
        finally:
            self._host.close(handle)

    def _end(self, journal: str) -> _End:
        """Taken while nobody writes: an append is in it whole or not at all. What comes later is for the next snapshot."""
        folder = f"{self._root}/{journal}"
        try:
            handle = self._host.open_read(f"{folder}/{parts.LOCK}")
        except (FileNotFoundError, NotADirectoryError):
            return self._last_part(folder)  # a journal that somebody copied here, or no journal at all
        try:
            lock(self._host, handle, where=folder, wait_s=_WAIT_S, shared=True)
            return self._last_part(folder)
        finally:
            self._host.close(handle)

    def _last_part(self, folder: str) -> _End:
        numbers = self._part_numbers(folder)
        plain = self._host.stat(f"{folder}/{parts.name(numbers[-1])}") if numbers else None
        return _End(numbers[-1] if numbers else 0, plain.size if plain else None)

    def _part_numbers(self, folder: str) -> list[int]:
        try:
            return parts.numbers(self._host, folder)
        except NotADirectoryError:
            return []  # a file that some program left there

    def _add_journal(self, journal: str, end: _End) -> None:
        folder = f"{self._root}/{journal}"
        for part in self._part_numbers(folder):
            if part <= end.part:
                self._add_part(folder, part, f"{journal}/{parts.name(part)}", end.size if part == end.part else None)

    def _add_part(self, folder: str, part: int, name: str, limit: int | None) -> None:
        try:
            with parts.stream(self._host, folder, part) as source:
                header = _measured(name, _blocks(source, limit))
                damaged, behind = parts.is_damaged(source), parts.behind(source)
        except OSError as problem:
            if self._host.stat(folder) is not None:  # otherwise it was just deleted
                self._note_unreadable(name, problem)
            return
        if damaged:
            what = "the compressed part is damaged; the rest of it can't be read and is not in the snapshot"
            self.problems.append(BadEntry(name, what))
        if behind:
            self.problems.append(BadEntry(name, f"{behind} bytes after the end of the compressed part are not in the snapshot"))
        try:
            with parts.stream(self._host, folder, part) as source:
                self._add(header, _blocks(source, header.size))
        except FileNotFoundError as problem:
            raise Failed("it changed while it was read", where=name, next="Export again.") from problem

    def _add_files(self, folder: str) -> None:
        """All files below it. The target of a link to a folder is not the keep's, and it may contain the link."""
        for name in _names(self._host, f"{self._root}/{folder}"):
            path = f"{folder}/{name}"
            try:
                at = self._host.stat(f"{self._root}/{path}")
            except OSError as problem:
                self._note_unreadable(path, problem)
                continue
            if at and at.is_folder and is_link(self._host, f"{self._root}/{path}"):
                self.problems.append(BadEntry(path, "it is a link to a folder that is not part of the keep"))
            elif at and at.is_folder:
                self._add_files(path)
            elif at and not name.endswith(".tmp"):
                self._add_file(path)

    def _add_file(self, name: str) -> None:
        """Opened only once, although it is read twice: it may be removed, be replaced or grow meanwhile."""
        try:
            with self._host.open_stream(f"{self._root}/{name}") as source:
                header = _measured(name, _blocks(source, None))
                source.seek(0)
                self._add(header, _blocks(source, header.size))
        except FileNotFoundError:
            pass  # drained, or deleted
        except OSError as problem:
            if self._packer.writing:
                raise
            self._note_unreadable(name, problem)

    def _add_bytes(self, name: str, data: bytes) -> None:
        self._add(_measured(name, [data]), [data])

    def _add(self, header: Header, blocks: Iterable[bytes]) -> None:
        self._packer.add(header, blocks)
        self._listed.append(header)

    def _note_unreadable(self, name: str, problem: OSError) -> None:
        self.problems.append(BadEntry(name, f"it can't be read ({problem.strerror or type(problem).__name__})"))


def _blocks(source: BinaryIO, limit: int | None) -> Iterator[bytes]:
    left = limit
    while left is None or left > 0:
        block = source.read(_BLOCK if left is None else min(_BLOCK, left))
        if not block:
            return
        yield block
        left = None if left is None else left - len(block)


def _measured(name: str, blocks: Iterable[bytes]) -> Header:
    """A tar has an entry's size before its bytes, so everything is read twice; memory stays bounded."""
    digest = hashlib.sha256()
    size = 0
    for block in blocks:
        digest.update(block)
        size += len(block)
    return Header(name, size, digest.hexdigest())


def session_folders(host: Host, root: str) -> list[str]:
    """Folders of sessions' journals, relative to the keep, ordered by name."""
    found = []
    for agent in _names(host, f"{root}/{SESSIONS}"):
        found += [f"{SESSIONS}/{agent}/{name}" for name in _names(host, f"{root}/{SESSIONS}/{agent}")]
    return found


def _names(host: Host, folder: str) -> list[str]:
    try:
        return sorted(host.names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def keep_id(host: Host, root: str) -> str:
    for frame in Reading(host, f"{root}/{KEEP}"):
        if frame["kind"] == Kind.KEEP_CREATED:
            return str(frame["body"].get("keep", ""))
    return ""


def _json(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _manifest(listed: Sequence[Header], problems: Sequence[BadEntry]) -> bytes:
    """`problems`: the file itself says what is not in it, if there is anything."""
    entries = [{"name": header.name, "size": header.size, "sha256": header.digest} for header in listed]
    noted = {"problems": [problem._asdict() for problem in problems]} if problems else {}
    return _json({"format": FORMAT, "entries": entries, **noted})


def _count(listed: Sequence[Header], digest: str) -> SnapshotCounts:
    journals = [header for header in listed if header.name.startswith("journal/")]
    sessions = {header.name.rpartition("/")[0] for header in journals} - {KEEP}
    return SnapshotCounts(len(sessions), len(journals), len(listed), sum(header.size for header in listed), digest)


# -- reading one


class SnapshotReader:
    """Reads a snapshot: entries with their contents. Afterwards `bad` says what could not be used."""

    def __init__(self, host: Host, path: str) -> None:
        try:
            self._source = host.open_stream(path)
        except (FileNotFoundError, IsADirectoryError, PermissionError) as problem:
            raise BadUsage(
                f"the snapshot can't be opened ({problem.strerror})", where=path, next="Name another file."
            ) from problem
        self._path = path
        self._file = Unpacker(self._source)
        self.about: dict[str, Any] = {}
        self.seen: list[Header] = []
        self._names: set[str] = set()
        self._manifest: set[Header] | None = None
        self.digest = ""
        self._more: list[BadEntry] = []
        #: What the export could not read completely, according to the manifest.
        self.noted: list[BadEntry] = []

    def close(self) -> None:
        self._source.close()

    @property
    def passed(self) -> int:
        """How many bytes of the file were read."""
        return self._source.tell()

    @property
    def bad(self) -> list[BadEntry]:
        return [*self._file.bad, *self._more]

    def entries(self) -> Iterator[tuple[Header, Iterator[bytes]]]:
        """All but our own two entries; raises when it is no snapshot, or one of a newer program."""
        first = True
        for header, blocks in self._file.entries():
            if first and header.name != ABOUT:
                self._more.append(BadEntry(ABOUT, "the beginning is missing"))
            first = False
            if header.name == ABOUT:
                self._read_about(_read_small(blocks))
            elif header.name == MANIFEST:
                self._read_manifest(_read_small(blocks))
                continue
            elif header.name in self._names:
                self._more.append(BadEntry(header.name, "it occurs twice"))
                continue
            else:
                yield header, blocks
            self._names.add(header.name)
            self.seen.append(header)
        if first:
            raise Failed("this is not a snapshot", where=self._path, next="Name a file that `dreamkeep snapshot export` wrote.")
        if self._manifest is None or not self._file.ended:
            self._more.append(BadEntry(MANIFEST, "the end is missing: the file was truncated or damaged"))
        if self._manifest is not None:
            missing, extra = self._manifest - set(self.seen), set(self.seen) - self._manifest
            self._more += [
                BadEntry(str(header.name), "it is in the manifest, but not in the file") for header in sorted(missing, key=str)
            ]
            self._more += [BadEntry(header.name, "it is in the file, but not in the manifest") for header in sorted(extra)]

    def _read_about(self, data: bytes) -> None:
        try:
            about = json.loads(data)
            is_newer = about["format"] > FORMAT
        except _NONSENSE:
            self._more.append(BadEntry(ABOUT, "it can't be read"))
            return
        if is_newer:
            raise Failed(
                f"a newer dreamkeep made this snapshot (format {about['format']}; this version reads {FORMAT})",
                where=self._path,
                next="Upgrade dreamkeep; nothing was changed.",
            )
        self.about = about

    def _read_manifest(self, data: bytes) -> None:
        try:
            manifest = json.loads(data)
            self._manifest = {Header(entry["name"], entry["size"], entry["sha256"]) for entry in manifest["entries"]}
            self.noted = [BadEntry(str(noted["where"]), str(noted["what"])) for noted in manifest.get("problems", ())]
        except _NONSENSE:
            self._more.append(BadEntry(MANIFEST, "it can't be read"))
            return
        self.digest = hashlib.sha256(data).hexdigest()


#: What JSON of somebody else raises in code that trusts it.
_NONSENSE = (ValueError, KeyError, TypeError, RecursionError)


def _read_small(blocks: Iterator[bytes]) -> bytes:
    data: list[bytes] = []
    left = _LARGEST
    try:
        for block in blocks:
            data.append(block)
            left -= len(block)
            if left < 0:
                return b""  # not written by us: nobody may fill our memory
        return b"".join(data)
    except DamagedEntry:
        return b""


def verify(host: Host, path: str, progress: Progress | None = None) -> VerifyResult:
    """Read everything, and compare every digest."""
    reader = SnapshotReader(host, path)
    try:
        at = host.stat(path)
        total = at.size if at else 0
        for _, blocks in reader.entries():
            try:
                for _ in blocks:
                    pass
            except DamagedEntry:
                continue  # it is in `bad`
            if progress:
                progress(reader.passed, total)
    except OSError as problem:
        raise from_os(problem, "reading the snapshot", path) from problem
    finally:
        reader.close()
    bad = {problem.where for problem in reader.bad}
    counts = _count([header for header in reader.seen if header.name not in bad], reader.digest)
    return VerifyResult(counts, reader.about, [*reader.bad, *reader.noted])
