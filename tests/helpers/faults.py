"""FragileHost: a machine in memory that fails, tears, forgets and reboots. (Dying: a process on the real disk that ends.)

What we promise to survive, and this host can do to us, at the nth operation:

- `fail`: the operation raises (ENOSPC, EIO, …) and does nothing;
- `tear`: a write takes only some bytes, and the next one raises;
- `bad_sync`: a sync raises, and the bytes it should have saved are marked clean and gone after the next power cut (as on Linux);
- `cut`: the power goes before the operation. `reboot()` then gives the disk as it may look afterwards: everything that was not
  synced is lost, zeroed, garbage, torn at some byte, or a mixture by sector; names whose folder was not synced are gone or there.

The model is stricter than ext4: a new name is durable only after its *folder* was synced, and a cut, too, needs a sync.
"""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, BinaryIO

from dreamkeep.host import DiskSpace, FolderEntry, Look, RealHost, Stat

SECTOR = 512
LOSSES = ("lost", "kept", "zeroed", "garbage", "torn", "mixed")


class PowerCut(BaseException):
    """Not an Exception: nobody may catch it and go on."""


@dataclass
class Inode:
    number: int
    data: bytearray = field(default_factory=bytearray)
    #: What is certainly on disk.
    durable: bytes = b""
    entries: dict[str, Inode] | None = None
    durable_entries: dict[str, Inode] = field(default_factory=dict)
    links: int = 1
    mtime: int = 0
    holder: object = None
    mode: int = 0
    #: Stretches whose sync failed: what the page cache shows there will never be on disk.
    rotten: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_folder(self) -> bool:
        return self.entries is not None


class FragileHost:
    def __init__(self, *, at: int = 0, how: str = "cut", seed: int = 0, error: int = errno.EIO) -> None:
        self.calls = 0
        self.trace: list[tuple[str, str]] = []
        self._at = at
        self._how = how
        self._error = error
        self.random_source = random.Random(seed)
        self._clock = 1_700_000_000_000_000_000
        self._inodes = 1
        self.root = Inode(0, entries={})
        self._open: dict[int, tuple[Inode, str]] = {}
        self._next_handle = 100
        self._torn = False
        self._cut_at = 0

    # -- trouble

    def plan(self, at: int, how: str, error: int = errno.EIO, *, cut_after: int = 0) -> None:
        """From now on, the `at`-th operation goes wrong; and, if asked for, the power goes so many operations later."""
        self.calls, self._at, self._how, self._error, self._torn = 0, at, how, error, False
        self._cut_at = at + cut_after if cut_after else 0

    def _step(self, what: str, path: str) -> bool:
        """Counts an operation that changes the disk; True when it is the one that goes wrong by itself."""
        self.calls += 1
        self.trace.append((what, path))
        if self._torn:
            self._torn = False
            raise OSError(self._error, "torn")
        if self._cut_at and self.calls >= self._cut_at:
            raise PowerCut
        if self.calls != self._at:
            return False
        if self._how == "cut":
            raise PowerCut
        if self._how == "fail":
            raise OSError(self._error, "injected")
        return True

    def reboot(self, loss: str = "lost", seed: int = 0) -> FragileHost:
        """The same disk in a new machine: no process, no lock, no handle has survived."""
        chance = random.Random(seed)
        after = FragileHost(seed=seed + 1)
        after._clock = self._clock + 1_000_000_000
        after._inodes = self._inodes
        after.root = _surviving(self.root, loss, chance, {})
        return after

    # -- clock and chance

    def now(self) -> int:
        self._clock += 1_000
        return self._clock

    def random(self, count: int) -> bytes:
        return self.random_source.randbytes(count)

    def sleep(self, seconds: float) -> None:
        self._clock += int(seconds * 1e9)

    # -- names

    def _find(self, path: str) -> Inode | None:
        node: Inode | None = self.root
        for name in path.strip("/").split("/"):
            if name and node is not None:
                node = node.entries.get(name) if node.entries is not None else None
        return node

    def _need(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _parent(self, path: str) -> tuple[dict[str, Inode], str]:
        above, _, name = path.rstrip("/").rpartition("/")
        folder = self._need(above or "/")
        assert folder.entries is not None
        return folder.entries, name

    def _new(self, folder: bool = False) -> Inode:
        self._inodes += 1
        return Inode(self._inodes, entries={} if folder else None, mtime=self.now())

    def stat(self, path: str) -> Stat | None:
        node = self._find(path)
        return _stat(node) if node else None

    def link_stat(self, path: str) -> Stat | None:
        return self.stat(path)

    def user(self) -> int:
        return 0

    def names(self, folder: str) -> list[str]:
        entries = self._need(folder).entries
        assert entries is not None
        return list(entries)

    def entries(self, folder: str) -> list[FolderEntry]:
        return [FolderEntry(name, self.stat(f"{folder}/{name}")) for name in sorted(self.names(folder))]

    def changed(self, folder: str, looks: Iterable[Look]) -> list[str]:
        found = []
        for path, size, mtime_ns, inode in looks:
            at = self.stat(f"{folder}/{path}")
            if at is None or at.mtime_ns != mtime_ns or (inode and (at.size, at.inode) != (size, inode)):
                found.append(path)
        return found

    def real_path(self, path: str) -> str:
        return path

    def copy_mode(self, path: str, like: str) -> None:
        self._step("copy_mode", path)

    def set_mode(self, path: str, mode: int) -> None:
        self._step("set_mode", path)
        self._need(path).mode = mode

    def start(self, words: Sequence[str], log: str, *, gentle: bool = False) -> None:
        raise OSError(errno.ENOSYS, "no processes here")

    def make_folder(self, path: str) -> bool:
        self._step("make_folder", path)
        entries, name = self._parent(path)
        if name in entries:
            return False
        entries[name] = self._new(folder=True)
        return True

    def remove(self, path: str) -> None:
        self._step("remove", path)
        entries, name = self._parent(path)
        if name not in entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        entries.pop(name).links -= 1

    def remove_folder(self, path: str) -> None:
        self._step("remove_folder", path)
        node = self._need(path)
        if node.entries:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        entries, name = self._parent(path)
        entries.pop(name).links -= 1

    def replace(self, old: str, new: str) -> None:
        self._step("replace", new)
        source, source_name = self._parent(old)
        target, target_name = self._parent(new)
        if target_name in target:
            target[target_name].links -= 1
        target[target_name] = source.pop(source_name)

    def link(self, old: str, new: str) -> None:
        self._step("link", new)
        entries, name = self._parent(new)
        if name in entries:
            raise FileExistsError(errno.EEXIST, "exists", new)
        node = self._need(old)
        node.links += 1
        entries[name] = node

    def sync_folder(self, path: str) -> None:
        node = self._need(path)
        if self._step("sync_folder", path) and self._how == "bad_sync":
            raise OSError(self._error, "sync failed", path)
        assert node.entries is not None
        node.durable_entries = dict(node.entries)

    def file_system(self, path: str) -> str:
        return "memory"

    def disk_space(self, path: str) -> DiskSpace:
        return DiskSpace(1 << 40, 1 << 41)

    # -- files

    def _handle(self, node: Inode, path: str) -> int:
        self._next_handle += 1
        self._open[self._next_handle] = (node, path)
        return self._next_handle

    def most_handles(self) -> int:
        return 1024

    def open_stream(self, path: str) -> BinaryIO:
        return io.BytesIO(bytes(self._need(path).data))

    def open_read(self, path: str) -> int:
        return self._handle(self._need(path), path)

    def open_append(self, path: str) -> int:
        return self._handle(self._need(path), path)

    def create(self, path: str) -> int:
        self._step("create", path)
        entries, name = self._parent(path)
        if name in entries:
            raise FileExistsError(errno.EEXIST, "exists", path)
        entries[name] = self._new()
        return self._handle(entries[name], path)

    def open_lock(self, path: str) -> int:
        if self._find(path) is None:
            return self.create(path)
        return self.open_append(path)

    def close(self, handle: int) -> None:
        node, _ = self._open.pop(handle)
        if node.holder == handle:
            node.holder = None

    def read(self, handle: int, size: int, offset: int) -> bytes:
        return bytes(self._open[handle][0].data[offset : offset + size])

    def read_into(self, handle: int, room: memoryview, offset: int) -> int:
        data = self.read(handle, len(room), offset)
        room[: len(data)] = data
        return len(data)

    def write(self, handle: int, data: bytes) -> int:
        node, path = self._open[handle]
        torn = self._step("write", path) and self._how == "tear"
        if torn:
            data = data[: self.random_source.randrange(len(data))]
            self._torn = True
        node.data += data
        node.mtime = self.now()
        return len(data)

    def sync(self, handle: int) -> None:
        node, path = self._open[handle]
        if self._step("sync", path) and self._how == "bad_sync":
            # Linux marks the pages clean: a later sync succeeds and saves nothing of them.
            node.rotten.append((_agree(node), len(node.data)))
            raise OSError(self._error, "sync failed", path)
        saved = bytearray(node.data)
        for start, end in node.rotten:
            saved[start:end] = b"\0" * (min(end, len(saved)) - start)
        node.durable = bytes(saved)

    def cut(self, handle: int, size: int) -> None:
        node, path = self._open[handle]
        self._step("cut", path)
        if size < len(node.data):
            # Until a sync the old bytes may come back: `durable` still has them.
            del node.data[size:]
        else:
            node.data += b"\0" * (size - len(node.data))
        node.mtime = self.now()

    def end(self, handle: int) -> int:
        return len(self._open[handle][0].data)

    def handle_stat(self, handle: int) -> Stat:
        return _stat(self._open[handle][0])

    def try_lock(self, handle: int, *, shared: bool = False) -> bool:
        node = self._open[handle][0]
        if node.holder not in (None, handle):
            return False
        if not shared:
            node.holder = handle
        return True

    def unlock(self, handle: int) -> None:
        self._open[handle][0].holder = None

    @property
    def open_handles(self) -> int:
        return len(self._open)


def _stat(node: Inode) -> Stat:
    mode = node.mode or (0o700 if node.is_folder else 0o600)
    return Stat(len(node.data), node.mtime, node.number, node.links, node.is_folder, mode)


def _surviving(node: Inode, loss: str, chance: random.Random, done: dict[int, Inode]) -> Inode:
    if node.number in done:
        return done[node.number]
    after = done[node.number] = Inode(node.number, mtime=node.mtime, links=0, mode=node.mode)
    if node.entries is None:
        after.data = bytearray(_bytes_left(node, loss, chance))
        after.durable = bytes(after.data)
        return after
    after.entries = {}
    for name in sorted({*node.entries, *node.durable_entries}):
        now, before = node.entries.get(name), node.durable_entries.get(name)
        if now is before:
            stays = now
        else:
            # An unsynced change of a name: it may have reached the disk or not.
            stays = {"lost": before, "kept": now}.get(loss, chance.choice((now, before)))
        if stays is not None:
            after.entries[name] = _surviving(stays, loss, chance, done)
            after.entries[name].links += 1
    after.durable_entries = dict(after.entries)
    return after


def _agree(node: Inode) -> int:
    """How many bytes from the start are the same in memory and on disk."""
    limit = min(len(node.durable), len(node.data))
    if node.durable[:limit] == node.data[:limit]:
        return limit
    return next(i for i in range(limit) if node.durable[i] != node.data[i])


def _bytes_left(node: Inode, loss: str, chance: random.Random) -> bytes:
    """Bytes equal to the durable ones are safe; the rest is anybody's guess."""
    same = _agree(node)
    safe, fresh, stale = bytes(node.data[:same]), bytes(node.data[same:]), bytes(node.durable[same:])
    if not fresh:
        return safe + (stale if loss == "lost" or chance.random() < 0.5 else b"") if loss != "kept" else safe
    fates: dict[str, Callable[[], bytes]] = {
        "lost": lambda: stale,
        "kept": lambda: fresh,
        "zeroed": lambda: b"\0" * len(fresh),
        "garbage": lambda: chance.randbytes(len(fresh)),
        "torn": lambda: fresh[: chance.randrange(len(fresh) + 1)],
        "mixed": lambda: _mixed(fresh, same, chance),
    }
    return safe + fates[loss]()


def _mixed(fresh: bytes, start: int, chance: random.Random) -> bytes:
    """Sector by sector, as a disk that reorders its writes."""
    left = b""
    at = 0
    while at < len(fresh):
        size = SECTOR - (start + at) % SECTOR
        piece = fresh[at : at + size]
        left += chance.choice((piece, piece, b"\0" * len(piece), chance.randbytes(len(piece))))
        at += size
    return left[: chance.randrange(len(left) + 1)] if chance.random() < 0.3 else left


def cut_at_every_step(
    prepared: Callable[[int], FragileHost], act: Callable[[FragileHost], object]
) -> Iterator[tuple[int, FragileHost]]:
    """(n, the machine whose power went before the nth operation of `act`) for every n; at last, one on which all of it was done.

    `prepared` makes a new machine for each n, which it is given as a seed.
    """
    for n in count(1):
        host = prepared(n)
        host.plan(n, "cut")
        try:
            act(host)
            done = True
        except PowerCut:
            done = False
        yield n, host
        if done:
            return


class Dying(RealHost):
    """On the real disk: the process is gone before the nth thing it does to it, and does nothing more."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise PowerCut


def _deadly(name: str) -> Callable[..., Any]:
    act = getattr(RealHost, name)

    def acts(host: Dying, *given: Any) -> Any:
        host.step()
        return act(host, *given)

    return acts


for _name in ("create", "write", "cut", "sync", "set_mode", "link", "replace", "remove", "remove_folder"):
    setattr(Dying, _name, _deadly(_name))
