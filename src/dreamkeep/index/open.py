"""Open the index file, making or rebuilding it where needed. Many processes may do so at once, for the first time too.

`state/index.lock` is held shared while a store is open and exclusively while the file is made or replaced, so that nobody pulls
the file from under somebody else's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from dreamkeep.errors import Busy, DreamkeepError, Failed, NotDurable, from_os
from dreamkeep.host import Host, Stat, lock, make_folders
from dreamkeep.index.sqlite import SqliteStore
from dreamkeep.index.sqlite_errors import OtherVersion, Unusable
from dreamkeep.journal import witness

T = TypeVar("T")

FILE = "index.sqlite"
LOCK = "state/index.lock"
_FILES = (FILE, f"{FILE}-wal", f"{FILE}-shm")
#: A new index gets its own name once it is whole: no crash leaves half of one under that name.
_NEW = f"{FILE}.new"
_NEW_FILES = (_NEW, f"{_NEW}-wal", f"{_NEW}-shm")
_ASIDE = "aside"
#: So often the file is made anew before we give up. Others may discard what we made.
_MADE = 8
_PEEKS = 6
_PEEK_WAIT_S = 2.0


@contextmanager
def opened(host: Host, root: str, *, wait_s: float) -> Iterator[SqliteStore]:
    """A store that has the right version; damage that shows only later raises Unusable from its methods."""
    try:
        make_folders(host, f"{root}/state")
        handle = host.open_lock(f"{root}/{LOCK}")
    except OSError as problem:
        raise from_os(problem, "opening the index", f"{root}/{LOCK}") from problem
    try:
        store = _open(host, root, handle, wait_s)
        try:
            yield store
        finally:
            store.close()
    finally:
        host.close(handle)


def _open(host: Host, root: str, handle: int, wait_s: float) -> SqliteStore:
    path = f"{root}/{FILE}"
    made = 0
    while True:
        lock(host, handle, where=f"{root}/{LOCK}", wait_s=wait_s, shared=True)
        if _is_file(host, root):
            try:
                return SqliteStore(path, wait_ms=int(wait_s * 1000))
            except Unusable:
                if made == _MADE:
                    raise  # a new one is no better: it is not the file
        made += 1
        host.unlock(handle)
        lock(host, handle, where=f"{root}/{LOCK}", wait_s=wait_s)
        with _durably(path):
            _make_if_still_unusable(host, root, path)
        host.unlock(handle)


@contextmanager
def _durably(path: str) -> Iterator[None]:
    """A disk that refuses a new index refuses no answer: the caller then asks memory."""
    try:
        yield
    except OSError as problem:
        raise from_os(problem, "rebuilding the index", path) from problem


def _make_if_still_unusable(host: Host, root: str, path: str) -> None:
    """Others may have waited for the same lock and done it already."""
    try:
        if _is_file(host, root):
            SqliteStore(path).close()
            return
    except OtherVersion:
        _tell_witness(host, root, path)
    except Unusable:
        pass
    take_away(host, root)
    # Created by us, so that it and the -wal and -shm that SQLite makes after it are for this user only.
    host.close(host.create(f"{root}/{_NEW}"))
    SqliteStore.create(f"{root}/{_NEW}")
    host.replace(f"{root}/{_NEW}", path)


def _tell_witness(host: Host, root: str, path: str) -> None:
    """Before there was a witness, the index alone knew what journals had held."""
    with suppress(OSError, DreamkeepError):
        witness.put_back(host, root, SqliteStore.known_to(path))


def _is_file(host: Host, root: str) -> bool:
    """False when nothing is there. SQLite must not even try to read a pipe or a device: it would wait for ever."""
    for name in _FILES:
        found = host.stat(f"{root}/{name}")
        if found is not None and not found.is_file:
            what = f"{name} is a folder" if found.is_folder else f"{name} is not a file"
            raise Unusable(what, where=f"{root}/{FILE}", next="Run `dreamkeep repair --apply`.")
    return host.stat(f"{root}/{FILE}") is not None


def problem(host: Host, root: str) -> str:
    """What is wrong with the index file, without mending it; "" when nothing is, or there is none."""
    path = f"{root}/{FILE}"
    try:
        if not _is_file(host, root):
            return ""
        store = SqliteStore(path)
        try:
            return store.check()
        finally:
            store.close()
    except Unusable as found:
        return found.what


def is_of_other_version(host: Host, root: str) -> bool:
    """Whether the next `opened` replaces it and takes over what it knows of lost frames."""
    try:
        if _is_file(host, root):
            SqliteStore(f"{root}/{FILE}").close()
    except DreamkeepError as found:
        return isinstance(found, OtherVersion)
    return False


def peek(host: Host, root: str, ask: Callable[[SqliteStore], T]) -> T | None:
    """Ask the index as it lies there, and write nothing at all: no lock file, no -wal, no -shm. It may be behind the journal.

    None when there is none. `ask` may be called several times: what it found while another process moved the files is not
    believed. Unusable when the file is damaged or of another version, Busy when it never comes to rest.
    """
    if not _is_file(host, root):
        return None
    handle = -1
    try:
        if host.stat(f"{root}/{LOCK}") is not None:
            handle = host.open_read(f"{root}/{LOCK}")
            lock(host, handle, where=f"{root}/{LOCK}", wait_s=_PEEK_WAIT_S, shared=True)
        return _peek(host, f"{root}/{FILE}", ask)
    finally:
        if handle >= 0:
            host.close(handle)


def _peek(host: Host, path: str, ask: Callable[[SqliteStore], T]) -> T:
    last: DreamkeepError = Busy("the index keeps changing while it is read", where=path, next="Try again.")
    for n in range(_PEEKS):
        before = _files(host, path)
        try:
            store = SqliteStore.peek(path, wal=before[1] is not None, shm=before[2] is not None)
            try:
                with store.reading():
                    found = ask(store)
            finally:
                store.close()
            if before[1] is not None or _files(host, path) == before:
                return found
        except OtherVersion:
            raise
        except (Busy, NotDurable, Failed) as problem:
            last = problem
        except Unusable as problem:
            if _files(host, path) == before:
                raise
            last = problem  # without a lock, damage may be what a writer is just doing
        host.sleep(0.01 * 2**n)
    raise last


def _files(host: Host, path: str) -> tuple[Stat | None, ...]:
    return tuple(host.stat(f"{path}{end}") for end in ("", "-wal", "-shm"))


def discard(host: Host, root: str, *, wait_s: float) -> None:
    """Take a damaged index away; the next `opened` makes a new one."""
    handle = host.open_lock(f"{root}/{LOCK}")
    try:
        lock(host, handle, where=f"{root}/{LOCK}", wait_s=wait_s)
        with _durably(f"{root}/{FILE}"):
            take_away(host, root)
    finally:
        host.close(handle)


def take_away(host: Host, root: str) -> None:
    """Whatever lies where the index belongs. A folder may hold somebody's files: it is moved into `aside/`. The caller holds the
    lock."""
    for name in (*_FILES, *_NEW_FILES):
        path = f"{root}/{name}"
        found = host.stat(path)
        if found is not None and found.is_folder:
            make_folders(host, f"{root}/{_ASIDE}")
            host.replace(path, f"{root}/{_ASIDE}/{name}.{host.random(6).hex()}")
        else:
            with suppress(FileNotFoundError):
                host.remove(path)
