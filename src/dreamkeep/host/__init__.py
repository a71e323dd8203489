"""The only door to disk, clock and processes.

Everything above takes a `Host` as an argument, so that tests can hand in one that fails, tears, forgets and reboots
(`tests/helpers/faults.py`). The methods are what storage code must think about, one system call each where possible:
a write may be short, a sync may fail, a name is durable only after its folder was synced.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, Protocol

from dreamkeep.errors import Busy, Unsupported

if os.name == "nt":
    raise Unsupported("dreamkeep needs POSIX file locks, which Windows lacks", where=sys.platform, next="Run it inside WSL.")

import fcntl

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class Stat(NamedTuple):
    size: int
    mtime_ns: int
    inode: int
    links: int
    is_folder: bool
    mode: int
    #: Neither a folder nor a pipe, a socket or a device.
    is_file: bool = True
    #: The user id of its owner.
    owner: int = 0
    #: Only `link_stat` says so: every other way follows links.
    is_link: bool = False


class DiskSpace(NamedTuple):
    """Of the disk that holds a folder, in bytes. `free`: what this user may still take of it."""

    free: int
    total: int


class FolderEntry(NamedTuple):
    """A name in a folder. `at` follows symbolic links; None when the link leads nowhere, or when nobody can look (`error`)."""

    name: str
    at: Stat | None
    error: str = ""


#: How a file looked: its path, size, time (ns) and inode. An inode of 0 means a folder, of which only the time counts. A plain
#: tuple, because there are thousands.
Look = tuple[str, int, int, int]


class Host(Protocol):
    """A handle is a small integer, as the operating system gives it."""

    def now(self) -> int:
        """Nanoseconds since 1970. Data, never order or identity."""

    def random(self, count: int) -> bytes: ...

    def sleep(self, seconds: float) -> None: ...

    # names
    def stat(self, path: str) -> Stat | None:
        """None when there is no such name; every other problem raises."""

    def link_stat(self, path: str) -> Stat | None:
        """As `stat`, but of a symbolic link itself."""

    def user(self) -> int:
        """The id of the user we run as; 0 is root."""

    def names(self, folder: str) -> list[str]: ...

    def entries(self, folder: str) -> list[FolderEntry]:
        """Names with their stats, in the order of names: for looking through many files at once."""

    def changed(self, folder: str, looks: Iterable[Look]) -> list[str]:
        """Those of these paths in the folder that look different now, are links, can't be examined, or are unreadable for their
        owner."""

    def make_folder(self, path: str) -> bool:
        """False when it was there already."""

    def remove(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None: ...

    def replace(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> None:
        """Create-or-fail: FileExistsError when `new` is there."""

    def sync_folder(self, path: str) -> None: ...

    def file_system(self, path: str) -> str:
        """The kind of file system a folder is on; "" where that can't be told."""

    def disk_space(self, path: str) -> DiskSpace: ...

    def most_handles(self) -> int:
        """How many this process may have open."""

    def open_stream(self, path: str) -> BinaryIO:
        """A stream to read from the start, or from any place after a seek."""

    # open files
    def open_read(self, path: str) -> int: ...

    def open_append(self, path: str) -> int:
        """Readable, and every write goes to the end."""

    def create(self, path: str) -> int:
        """As `open_append`, but create-or-fail."""

    def open_lock(self, path: str) -> int:
        """Opens or creates a file that exists only to be locked."""

    def close(self, handle: int) -> None: ...

    def read(self, handle: int, size: int, offset: int) -> bytes: ...

    def read_into(self, handle: int, room: memoryview, offset: int) -> int:
        """How many bytes came: no more than there is room for, 0 at the end."""

    def write(self, handle: int, data: bytes) -> int:
        """How many bytes were taken: may be fewer than given."""

    def sync(self, handle: int) -> None:
        """Returns when the file's bytes and length are on disk."""

    def cut(self, handle: int, size: int) -> None: ...

    def end(self, handle: int) -> int:
        """The file's length."""

    def handle_stat(self, handle: int) -> Stat: ...

    def real_path(self, path: str) -> str:
        """Where a path leads when every link is followed; the last name need not be there."""

    def copy_mode(self, path: str, like: str) -> None:
        """`path` gets the mode of `like`, and its owner where we may give it."""

    def set_mode(self, path: str, mode: int) -> None: ...

    def start(self, words: Sequence[str], log: str, *, gentle: bool = False) -> None:
        """Start another program in a session of its own, and don't wait for it. Its stderr goes to the file `log`. `gentle`: with
        a low priority."""

    # locks that die with their process
    def try_lock(self, handle: int, *, shared: bool = False) -> bool: ...

    def unlock(self, handle: int) -> None: ...


#: The largest number that SQLite and JSON libraries take. In nanoseconds that is the year 2262, and a file may say any year; some
#: file systems also number their files beyond it.
_LARGEST = (1 << 63) - 1


def bounded_ns(ns: int) -> int:
    """A file's time as we keep it. Two times beyond the bounds look the same; sizes and inodes still differ."""
    return ns if -_LARGEST < ns < _LARGEST else _LARGEST if ns > 0 else -_LARGEST


def _stat(s: os.stat_result) -> Stat:
    kind, inode = s.st_mode & 0o170000, s.st_ino & _LARGEST
    is_folder, is_file, is_link = kind == 0o040000, kind == 0o100000, kind == 0o120000
    mode = s.st_mode & 0o7777
    return Stat(s.st_size, bounded_ns(s.st_mtime_ns), inode, s.st_nlink, is_folder, mode, is_file, s.st_uid, is_link)


def _name(entry: FolderEntry) -> str:
    return entry.name


#: Errors for an entry that is gone meanwhile, or a link to nothing or to itself.
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _entry(found: os.DirEntry[str]) -> FolderEntry:
    try:
        return FolderEntry(found.name, _stat(found.stat()))
    except OSError as problem:
        return FolderEntry(found.name, None, "" if problem.errno in _LEADS_NOWHERE else problem.strerror or str(problem))


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


#: Programs that nobody waits for. One that ended stays a zombie until we ask for it, and a watcher runs for weeks.
_started: list[int] = []


def _has_ended(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG)[0] == process
    except ChildProcessError:
        return True  # our parent's, before we were forked


class RealHost:
    """The machine we run on."""

    def now(self) -> int:
        return time.time_ns()

    def random(self, count: int) -> bytes:
        return os.urandom(count)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def entries(self, folder: str) -> list[FolderEntry]:
        with os.scandir(folder) as found:
            return sorted(map(_entry, found), key=_name)

    def changed(self, folder: str, looks: Iterable[Look]) -> list[str]:
        # Only system calls and comparisons: for thousands of files, making a Stat of each would take longer than the calls.
        stat, found = os.stat, []
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for path, size, mtime_ns, inode in looks:
                try:
                    now = stat(path, dir_fd=at, follow_symlinks=False)
                except OSError:
                    found.append(path)
                    continue
                same = now.st_mtime_ns == mtime_ns or bounded_ns(now.st_mtime_ns) == mtime_ns
                same = same and (not inode or (now.st_ino & _LARGEST == inode and now.st_size == size))
                if not same or not now.st_mode & 0o400:
                    found.append(path)
        finally:
            os.close(at)
        return found

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def close(self, handle: int) -> None:
        os.close(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        return os.pread(handle, size, offset)

    def read_into(self, handle: int, room: memoryview, offset: int) -> int:
        return os.preadv(handle, [room], offset)

    def write(self, handle: int, data: bytes) -> int:
        return os.write(handle, data)

    def cut(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def stat(self, path: str) -> Stat | None:
        try:
            return _stat(os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def link_stat(self, path: str) -> Stat | None:
        try:
            return _stat(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def user(self) -> int:
        return os.geteuid()

    def handle_stat(self, handle: int) -> Stat:
        return _stat(os.fstat(handle))

    def make_folder(self, path: str) -> bool:
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            return False
        return True

    def sync_folder(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # A folder's entries are metadata: fdatasync need not flush them.
            os.fsync(handle)
        finally:
            os.close(handle)

    def file_system(self, path: str) -> str:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
                return file_system_of(os.path.realpath(path), mounts.read())
        except FileNotFoundError:
            return ""

    def disk_space(self, path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def copy_mode(self, path: str, like: str) -> None:
        seen = os.stat(like)
        try:
            os.chown(path, seen.st_uid, seen.st_gid)
        except PermissionError:
            pass  # only root may give files away
        os.chmod(path, seen.st_mode & 0o7777)

    def set_mode(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def start(self, words: Sequence[str], log: str, *, gentle: bool = False) -> None:
        import signal

        if gentle and os.access("/usr/bin/nice", os.X_OK):
            words = ["/usr/bin/nice", "-n", "15", *words]

        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE),
        ]
        quiet = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
        _started[:] = [one for one in _started if not _has_ended(one)]
        _started.append(os.posix_spawn(words[0], list(words), os.environ, file_actions=actions, setsid=True, setsigdef=quiet))

    def most_handles(self) -> int:
        import resource

        return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)

    def open_stream(self, path: str) -> BinaryIO:
        stream = open(path, "rb", buffering=1 << 18, opener=_at_once)  # noqa: SIM115 (whoever asked closes it)
        if not stream.seekable():
            stream.close()
            raise OSError(errno.ESPIPE, "it is a pipe or a device, not a file", path)
        return stream

    def open_read(self, path: str) -> int:
        # Without waiting for a writer if it is a pipe; for a file it has no effect.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def open_append(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    def create(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def open_lock(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def end(self, handle: int) -> int:
        return os.lseek(handle, 0, os.SEEK_END)

    if sys.platform == "darwin":

        def sync(self, handle: int) -> None:
            # fsync on macOS leaves the bytes in the drive's own cache; F_FULLFSYNC empties that too.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)

    else:

        def sync(self, handle: int) -> None:
            os.fdatasync(handle)

    def try_lock(self, handle: int, *, shared: bool = False) -> bool:
        # flock, not lockf: POSIX record locks vanish when *any* handle of the file is closed in the process.
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


def file_system_of(path: str, mountinfo: str) -> str:
    """The kind of the mount with the longest mount point above `path`; of two on one point the later one counts."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if " - " not in line or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= best:
            best, kind = len(point), line.partition(" - ")[2].split(" ")[0]
    return kind


_FIRST_PAUSE_S = 0.000_05
_LONGEST_PAUSE_S = 0.02


def lock(host: Host, handle: int, *, where: str, wait_s: float, shared: bool = False) -> None:
    """Wait for a lock, but not for ever: its holder may be stopped."""
    if host.try_lock(handle, shared=shared):
        return
    pause = _FIRST_PAUSE_S
    waited = 0.0
    while not host.try_lock(handle, shared=shared):
        if waited >= wait_s:
            raise Busy(
                f"another process has held the lock for {wait_s:g} s",
                where=where,
                next="Wait for it, or resume or end that process; the lock ends with it.",
            )
        host.sleep(pause)
        waited += pause
        pause = min(pause * 2, _LONGEST_PAUSE_S)


@contextmanager
def exclusive_lock(host: Host, path: str, *, wait_s: float) -> Iterator[None]:
    """Hold this lock file alone. It is created if it is missing."""
    make_folders(host, os.path.dirname(path))
    handle = host.open_lock(path)
    try:
        lock(host, handle, where=path, wait_s=wait_s)
        yield
    finally:
        host.close(handle)


def make_folders(host: Host, path: str) -> None:
    """Every folder down to `path`, each made durable by syncing the one above it."""
    if host.stat(path) is not None:
        return
    above = os.path.dirname(path)
    if above and above != path:
        if host.stat(above) is None:
            make_folders(host, above)
        else:
            _sync_name(host, above)
    host.make_folder(path)
    host.sync_folder(above or ".")


def _sync_name(host: Host, folder: str) -> None:
    """Sync the name of a folder: its maker may have died, or its disk failed, before the name was durable."""
    try:
        host.sync_folder(os.path.dirname(folder) or ".")
    except PermissionError:
        pass  # we may not read the folder above, so we did not make this one


def write_all(host: Host, handle: int, data: bytes) -> None:
    """For new files, where a short write is followed by another: nobody reads them before they are published."""
    view = memoryview(data)
    while view:
        taken = host.write(handle, bytes(view))
        if taken <= 0:
            raise OSError(5, "the disk accepted no bytes")
        view = view[taken:]


def write_new(host: Host, path: str, blocks: Iterable[bytes], *, like: str | None = None) -> None:
    """Write a file that is durable except for its name, with the mode of `like`. On failure nothing is left."""
    handle = host.create(path)
    try:
        for block in blocks:
            write_all(host, handle, block)
        if like is not None:
            host.copy_mode(path, like)
        host.sync(handle)
    except (Exception, KeyboardInterrupt, SystemExit):
        host.close(handle)
        host.remove(path)
        raise
    host.close(handle)


def staged(host: Host, path: str, blocks: Iterable[bytes]) -> str:
    """Write a durable file under a unique name beside `path`. Returns that name."""
    temp = f"{path}.{host.random(8).hex()}.tmp"
    write_new(host, temp, blocks)
    return temp


def replace_file(host: Host, path: str, data: bytes) -> None:
    """The old bytes or the new ones, never a mixture, whenever the power goes."""
    temp = staged(host, path, [data])
    host.replace(temp, path)
    host.sync_folder(os.path.dirname(path) or ".")


def publish_file(host: Host, path: str, data: bytes) -> bool:
    """As `publish_blocks`, for a small file."""
    return publish_blocks(host, path, [data])


def publish_blocks(host: Host, path: str, blocks: Iterable[bytes]) -> bool:
    """Create-or-fail. False if something appeared at `path` meanwhile; that is left alone."""
    temp = staged(host, path, blocks)
    try:
        host.link(temp, path)
        appeared = False
    except FileExistsError:
        appeared = True
    finally:
        host.remove(temp)
    host.sync_folder(os.path.dirname(path) or ".")
    return not appeared


def remove_tree(host: Host, folder: str) -> None:
    """Remove a folder of ours with everything in it. A link is removed, its target stays."""
    at = host.link_stat(folder)
    if at is None:
        return
    for entry in host.entries(folder):
        path = f"{folder}/{entry.name}"
        inside = host.link_stat(path)
        if inside is not None and inside.is_folder:
            remove_tree(host, path)
        else:
            host.remove(path)
    host.remove_folder(folder)
    host.sync_folder(os.path.dirname(folder))


def read_file(host: Host, path: str) -> bytes:
    """The bytes of a small file."""
    handle = host.open_read(path)
    try:
        return host.read(handle, host.end(handle), 0)
    except OverflowError:  # a folder's end is at the end of all numbers
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
    finally:
        host.close(handle)
