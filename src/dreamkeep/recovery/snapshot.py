"""A keep as one file, out and checked: `export`, `verify`. What it holds is told in `docs/snapshot.md`.

    dreamkeep-snapshot.json   format and whose keep it is; first, so that an older program can refuse
    keep.toml                 settings
    journal/…                 every part, uncompressed, byte for byte: the truth
    aside/… spool/… pages/…   what was set aside; hook calls not yet journaled; pages
    view/AGENT/….md           each session for people to read; nothing is imported from here
    manifest.json             names, sizes and digests of all; last, so that a cut file shows

Caches, locks and the index are not in it: they are made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from dreamkeep.errors import BadUsage, Failed, from_os
from dreamkeep.event import Kind
from dreamkeep.host import Host, lock, write_all
from dreamkeep.journal import parts
from dreamkeep.journal.places import KEEP, SESSIONS
from dreamkeep.journal.reader import Reading
from dreamkeep.recovery.snapshot_file import Bad, Damaged, Header, Packer, Unpacker

FORMAT = 1
ABOUT = "dreamkeep-snapshot.json"
MANIFEST = "manifest.json"
TOML = "keep.toml"
VIEW = "view"
#: Folders whose files go in as they are.
FOLDERS = ("aside", "spool", "pages")
_BLOCK = 1 << 20
_WAIT_S = 10.0

#: (done, of how many)
Progress = Callable[[int, int], None]
#: For a journal's folder: a name and a page for people; None when there is nothing to show.
Views = Callable[[str], "tuple[str, str] | None"]


class Counts(NamedTuple):
    """What a snapshot holds. `digest`: of its manifest, and so of everything."""

    sessions: int = 0
    parts: int = 0
    files: int = 0
    bytes: int = 0
    digest: str = ""


class Verified(NamedTuple):
    counts: Counts
    about: Mapping[str, Any]
    bad: Sequence[Bad]

    @property
    def ok(self) -> bool:
        return not self.bad


# -- export


def export(host: Host, root: str, path: str, view: Views | None, progress: Progress | None = None) -> Counts:
    """`view`: what people shall read of the session in this journal folder; none for a snapshot without pages."""
    temp = f"{path}.{host.random(8).hex()}.tmp"
    if host.stat(path) is not None:
        raise BadUsage("there is a file of that name", where=path, next="Choose another name, or take that one away.")
    try:
        handle = host.create(temp)
    except OSError as problem:
        raise from_os(problem, "making the snapshot", path) from problem
    try:
        try:
            counts = _Export(host, root, view, Packer(lambda data: write_all(host, handle, data)), progress).run()
            host.sync(handle)
        finally:
            host.close(handle)
        host.link(temp, path)  # create-or-fail
        host.remove(temp)
    except BaseException as problem:
        _discard(host, temp)
        if isinstance(problem, OSError):
            raise from_os(problem, "writing the snapshot", path) from problem
        raise
    host.sync_folder(path.rpartition("/")[0] or ".")
    return counts


def _discard(host: Host, path: str) -> None:
    try:
        host.remove(path)
    except OSError:
        pass  # the disk that failed us; the name says what it is


class _Export:
    def __init__(self, host: Host, root: str, view: Views | None, packer: Packer, progress: Progress | None) -> None:
        self._host = host
        self._root = root
        self._view = view
        self._packer = packer
        self._progress = progress
        self._listed: list[Header] = []

    def run(self) -> Counts:
        journals = [KEEP, *session_folders(self._host, self._root)]
        self._add_bytes(ABOUT, _json({"format": FORMAT, "keep": keep_id(self._host, self._root)}))
        if self._host.stat(f"{self._root}/{TOML}"):
            self._add_file(TOML)
        for n, journal in enumerate(journals):
            self._add_journal(journal)
            if self._progress:
                self._progress(n + 1, len(journals))
        for folder in FOLDERS:
            for name in files_below(self._host, self._root, folder):
                self._add_file(name)
        if self._view:
            for journal in journals[1:]:
                if page := self._view(journal):
                    self._add_bytes(f"{VIEW}/{page[0]}", page[1].encode("utf-8", "surrogatepass"))
        counts = _counted(self._listed, hashlib.sha256(manifest := _manifest(self._listed)).hexdigest())
        self._add_bytes(MANIFEST, manifest)
        self._packer.end()
        return counts

    def _add_journal(self, journal: str) -> None:
        """Up to where it is written now: appends that come meanwhile are for the next snapshot."""
        folder = f"{self._root}/{journal}"
        last, size = _end(self._host, folder)
        for part in parts.numbers(self._host, folder):
            if part > last:
                break
            limit = size if part == last else None
            header = _measured(f"{journal}/{parts.name(part)}", _part_blocks(self._host, folder, part, limit))
            self._packer.add(header, _part_blocks(self._host, folder, part, limit))
            self._listed.append(header)

    def _add_file(self, name: str) -> None:
        header = _measured(name, _file_blocks(self._host, f"{self._root}/{name}"))
        self._packer.add(header, _file_blocks(self._host, f"{self._root}/{name}"))
        self._listed.append(header)

    def _add_bytes(self, name: str, data: bytes) -> None:
        header = _measured(name, [data])
        self._packer.add(header, [data])
        self._listed.append(header)


def _end(host: Host, folder: str) -> tuple[int, int | None]:
    """The last part and its length, seen while nobody writes: an append is there whole or not at all."""
    try:
        handle = host.open_read(f"{folder}/{parts.LOCK}")
    except FileNotFoundError:
        return _last(host, folder)  # a journal that somebody copied here
    try:
        lock(host, handle, where=folder, wait_s=_WAIT_S, shared=True)
        return _last(host, folder)
    finally:
        host.close(handle)


def _last(host: Host, folder: str) -> tuple[int, int | None]:
    numbers = parts.numbers(host, folder)
    if not numbers:
        return 0, None
    plain = host.stat(f"{folder}/{parts.name(numbers[-1])}")
    return numbers[-1], plain.size if plain else None


def _part_blocks(host: Host, folder: str, part: int, limit: int | None) -> Iterator[bytes]:
    with parts.stream(host, folder, part) as source:
        yield from _blocks(source, limit)


def _file_blocks(host: Host, path: str) -> Iterator[bytes]:
    source = host.open_stream(path)
    try:
        yield from _blocks(source, None)
    finally:
        source.close()


def _blocks(source: BinaryIO, limit: int | None) -> Iterator[bytes]:
    left = limit
    while left is None or left > 0:
        block = source.read(_BLOCK if left is None else min(_BLOCK, left))
        if not block:
            return
        yield block
        left = None if left is None else left - len(block)


def _measured(name: str, blocks: Iterable[bytes]) -> Header:
    """A tar says how long an entry is before it comes, so everything is read twice; memory stays bounded."""
    digest = hashlib.sha256()
    size = 0
    for block in blocks:
        digest.update(block)
        size += len(block)
    return Header(name, size, digest.hexdigest())


def session_folders(host: Host, root: str) -> list[str]:
    """Folders of sessions' journals, relative to the keep, in an order that depends on their names alone."""
    found = []
    for agent in _names(host, f"{root}/{SESSIONS}"):
        found += [f"{SESSIONS}/{agent}/{name}" for name in _names(host, f"{root}/{SESSIONS}/{agent}")]
    return found


def files_below(host: Host, root: str, folder: str) -> list[str]:
    found: list[str] = []
    for name in _names(host, f"{root}/{folder}"):
        path = f"{folder}/{name}"
        at = host.stat(f"{root}/{path}")
        if at and at.is_folder:
            found += files_below(host, root, path)
        elif at and not name.endswith(".tmp"):
            found.append(path)
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


def _manifest(listed: Sequence[Header]) -> bytes:
    entries = [{"name": one.name, "size": one.size, "sha256": one.digest} for one in listed]
    return _json({"format": FORMAT, "entries": entries})


def _counted(listed: Sequence[Header], digest: str) -> Counts:
    journals = [one for one in listed if one.name.startswith("journal/")]
    sessions = {one.name.rpartition("/")[0] for one in journals} - {KEEP}
    return Counts(len(sessions), len(journals), len(listed), sum(one.size for one in listed), digest)


# -- reading one


class Opened:
    """A snapshot being read: entries with their contents; afterwards `bad` says what could not be used."""

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
        self._manifest: list[Header] | None = None
        self.digest = ""
        self._more: list[Bad] = []

    def close(self) -> None:
        self._source.close()

    @property
    def passed(self) -> int:
        """How many bytes of the file were read."""
        return self._source.tell()

    @property
    def bad(self) -> list[Bad]:
        return [*self._file.bad, *self._more]

    def entries(self) -> Iterator[tuple[Header, Iterator[bytes]]]:
        """All but our own two; raises when it is no snapshot of ours, or one of a newer program."""
        first = True
        for header, blocks in self._file.entries():
            if first and header.name != ABOUT:
                self._more.append(Bad(ABOUT, "the beginning is missing"))
            first = False
            if header.name == ABOUT:
                self._introduce(_small(blocks))
            elif header.name == MANIFEST:
                self._check(_small(blocks))
                continue
            else:
                yield header, blocks
            self.seen.append(header)
        if first:
            raise Failed("this is no snapshot", where=self._path, next="Name a file that `dreamkeep snapshot export` wrote.")
        if self._manifest is None or not self._file.ended:
            self._more.append(Bad(MANIFEST, "the end is missing: the file was cut or damaged"))

    def _introduce(self, data: bytes) -> None:
        try:
            said = json.loads(data)
            newer = said["format"] > FORMAT
        except (ValueError, KeyError, TypeError):
            self._more.append(Bad(ABOUT, "it can't be read"))
            return
        if newer:
            raise Failed(
                f"a newer dreamkeep made this snapshot (format {said['format']}, this program knows {FORMAT})",
                where=self._path,
                next="Upgrade dreamkeep; nothing was changed.",
            )
        self.about = said

    def _check(self, data: bytes) -> None:
        try:
            listed = [Header(e["name"], e["size"], e["sha256"]) for e in json.loads(data)["entries"]]
        except (ValueError, KeyError, TypeError):
            self._more.append(Bad(MANIFEST, "it can't be read"))
            return
        self._manifest = listed
        self.digest = hashlib.sha256(data).hexdigest()
        whole = set(self.seen)
        self._more += [Bad(one.name, "it is in the manifest, and not in the file") for one in listed if one not in whole]


def _small(blocks: Iterator[bytes]) -> bytes:
    try:
        return b"".join(blocks)
    except Damaged:
        return b""


def verify(host: Host, path: str, progress: Progress | None = None) -> Verified:
    """Read everything, and compare every digest."""
    opened = Opened(host, path)
    try:
        at = host.stat(path)
        whole = at.size if at else 0
        for _, blocks in opened.entries():
            try:
                for _ in blocks:
                    pass
            except Damaged:
                continue  # told in `bad`
            if progress:
                progress(opened.passed, whole)
    except OSError as problem:
        raise from_os(problem, "reading the snapshot", path) from problem
    finally:
        opened.close()
    bad = {one.where for one in opened.bad}
    return Verified(_counted([one for one in opened.seen if one.name not in bad], opened.digest), opened.about, opened.bad)
