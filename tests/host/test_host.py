"""The door to the disk: files are replaced whole or not at all, locks die with their process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from dreamkeep.errors import Busy, NoSpace, NotDurable, ReadOnly, from_os
from dreamkeep.event import Ids, rfc3339
from dreamkeep.host import RealHost, file_system_of, lock, make_folders, publish_file, read_file, replace_file, write_new
from dreamkeep.host.liveness import hold, is_held, sweep
from tests.helpers.faults import LOSSES, FragileHost, cut_at_every_step

HOST = RealHost()


def test_a_file_is_old_or_new_whenever_the_power_goes() -> None:
    """W15 W16: every file we write (settings, pages) is written atomically; kill at every operation."""
    old, new = b"old " * 300, b"new " * 500

    def written(_: int) -> FragileHost:
        host = FragileHost()
        make_folders(host, "/keep")
        replace_file(host, "/keep/keep.toml", old)
        return host

    for n, host in cut_at_every_step(written, lambda host: replace_file(host, "/keep/keep.toml", new)):
        for loss in LOSSES:
            after = host.reboot(loss, seed=n)
            node = after._find("/keep/keep.toml")
            assert node is not None and bytes(node.data) in (old, new), (n, loss)
    assert n > 4


def test_what_was_replaced_is_durable_when_the_call_returns() -> None:
    """W12: file sync, rename, folder sync; leaving out any of them loses the file in this model."""
    host = FragileHost()
    make_folders(host, "/keep")
    host.trace.clear()
    replace_file(host, "/keep/a", b"x")
    assert [what for what, _ in host.trace] == ["create", "write", "sync", "replace", "sync_folder"]
    for loss in LOSSES:
        node = host.reboot(loss)._find("/keep/a")
        assert node is not None and bytes(node.data) == b"x"


def test_publishing_never_overwrites_what_appeared_meanwhile(tmp_path: Path) -> None:
    """W11: create-or-fail; the loser is told."""
    target = str(tmp_path / "a")
    assert publish_file(HOST, target, b"first")
    assert not publish_file(HOST, target, b"second")
    assert Path(target).read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_is_not_read_as_a_file_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_file(RealHost(), str(tmp_path))


def test_temp_names_are_unique_and_exclusive(tmp_path: Path) -> None:
    """W10: many at once on one target: no name is shared, every version is whole, no temp file stays."""
    target = str(tmp_path / "a")
    program = (
        "import sys; from dreamkeep.host import RealHost, replace_file\n"
        "for n in range(40): replace_file(RealHost(), sys.argv[1], (sys.argv[2] * 5000).encode())"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, target, letter]) for letter in "abcd"]
    while any(p.poll() is None for p in running):
        if os.path.exists(target):
            seen = Path(target).read_bytes()
            assert len(seen) == 5000 and len(set(seen)) == 1
    assert [p.returncode for p in running] == [0] * 4
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_write_leaves_no_temp_file() -> None:
    for n in count(1):
        host = FragileHost()
        make_folders(host, "/keep")
        host.plan(n, "fail")
        try:
            replace_file(host, "/keep/a", b"x" * 100)
        except OSError:
            left = host.names("/keep")
            assert left in ([], ["a"]) or host.trace[-1][0] in ("remove", "replace"), (n, left)
        if host.calls < n:
            break


def test_a_new_file_is_like_another_and_one_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    other, new = tmp_path / "other", tmp_path / "new"
    other.write_bytes(b"")
    other.chmod(0o640)

    def interrupted() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_new(HOST, str(new), interrupted())
    assert not new.exists()
    write_new(HOST, str(new), [b"two ", b"blocks"], like=str(other))
    assert (new.read_bytes(), new.stat().st_mode & 0o777) == (b"two blocks", 0o640)
    with pytest.raises(FileExistsError):
        write_new(HOST, str(new), [b"another's"])
    assert new.read_bytes() == b"two blocks"


def test_a_lock_is_given_up_by_death_and_not_by_being_stopped(tmp_path: Path) -> None:
    """D3: SIGKILL the holder; the next one acquires. No pid, no age, no clock is looked at."""
    path = tmp_path / "lock"
    program = (
        "import sys, time; from dreamkeep.host import RealHost\n"
        "h = RealHost(); assert h.try_lock(h.open_lock(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    handle = HOST.open_lock(str(path))
    with pytest.raises(Busy, match="held the lock"):
        lock(HOST, handle, where=str(path), wait_s=0.05)
    os.kill(holder.pid, 19)
    assert not HOST.try_lock(handle)
    os.kill(holder.pid, 9)
    holder.wait()
    holder.stdout.close()
    assert HOST.try_lock(handle)
    os.close(handle)


def test_owners_that_are_gone_are_swept_and_living_ones_stay(tmp_path: Path) -> None:
    names = iter(["a", "b"])
    mine = hold(HOST, lambda: f"{tmp_path}/{next(names)}")
    (tmp_path / "dead").touch()
    assert is_held(HOST, mine.path) and not is_held(HOST, f"{tmp_path}/dead") and not is_held(HOST, f"{tmp_path}/never")
    sweep(HOST, str(tmp_path))
    assert os.listdir(tmp_path) == ["a"]
    mine.release()
    assert not is_held(HOST, mine.path) and os.listdir(tmp_path) == []


def test_ids_are_sorted_unique_and_never_go_back_with_the_clock() -> None:
    """T7 S25: the clock steps back, stands still, jumps; ids only grow."""
    times = iter([10**18, 10**18, 10**18 - 10**12, 10**18 + 10**6, 5] + [10**18] * 5000)
    ids = Ids(lambda: next(times), os.urandom)
    made = [ids.new() for _ in range(5005)]
    assert made == sorted(made) and len(set(made)) == len(made)
    import uuid

    assert {uuid.UUID(i).version for i in made} == {7}
    assert {uuid.UUID(i).variant for i in made} == {uuid.RFC_4122}
    moment = 1_763_240_235_769_942_000
    assert uuid.UUID(Ids(lambda: moment, os.urandom).new()).int >> 80 == moment // 1_000_000


def test_times_are_rfc3339_in_utc() -> None:
    from datetime import UTC, datetime

    for ns in (0, 1, 999_999_999, 1_763_240_235_769_942_123, 951_827_696_000_000_000):
        assert (
            rfc3339(ns) == datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ns % 10**9 // 1000:06d}Z"
        )


def test_errors_of_the_disk_say_what_where_and_what_next() -> None:
    """W8"""
    import errno
    import pickle

    for number, kind in ((errno.ENOSPC, NoSpace), (errno.EFBIG, NoSpace), (errno.EROFS, ReadOnly), (errno.EIO, NotDurable)):
        problem = from_os(OSError(number, os.strerror(number)), "writing", "/keep/journal")
        assert type(problem) is kind
        assert os.strerror(number) in problem.what and problem.where == "/keep/journal" and problem.next
        assert str(pickle.loads(pickle.dumps(problem))) == str(problem)


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount() -> None:
    """X2"""
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:40 / /mnt rw - tmpfs t rw\n"
        "3 2 0:41 / /mnt/net\\040share rw - nfs4 host:/x rw\n"
        "garbage\n"
    )
    assert file_system_of("/home/x", mounts) == "ext4"
    assert file_system_of("/mnt/y", mounts) == "tmpfs"
    assert file_system_of("/mnt/net share/keep", mounts) == "nfs4"
    assert file_system_of("/mntx", mounts) == "ext4"


def test_programs_that_were_started_and_ended_do_not_pile_up(tmp_path: Path) -> None:
    """A watcher starts a dream now and then, for weeks."""
    host, before = RealHost(), _children()
    for n in range(5):
        host.start([sys.executable, "-c", f"open({str(tmp_path / str(n))!r}, 'w')"], str(tmp_path / "log"))
        while {state for one, state in _children().items() if one not in before} not in ({"Z"}, set()):
            host.sleep(0.01)
        assert (tmp_path / str(n)).exists()
    assert len(_children().keys() - before.keys()) <= 1


def _children() -> dict[str, str]:
    """Our children, and how they are (Z: ended, and nobody asked)."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,state=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return {row[0]: row[2][:1] for row in rows if row[1] == str(os.getpid()) and row[3] != "ps"}
