"""Real power cuts, as near as a running machine can come: an ext4 image is shut down in the middle of the work and mounted again.

EXT4_IOC_SHUTDOWN stops the file system dead: what it had not written to its image is gone, as after a cut. Shut down with a log
flush the file system's own journal is complete; without one its last transactions are lost too.

In one thing it is unlike a cut: the processes go on. A sync that was under way when the ioctl came may then return success though
its bytes are gone (a bare loop of write and fdatasync sees the same, in one of twenty rounds: ext4 finds its journal stopped and
nothing left to wait for). Nobody hears a machine without power: only what was acknowledged before the ioctl counts as promised.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dreamkeep import Keep

from .writers import Account, Child, Said, child, said

_SHUTDOWN = 0x8004587D
_LOG_FLUSH, _NO_LOG_FLUSH = 1, 2
_WRITERS = ("v", "w")


def _must(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Disk:
    """A small ext4 file system in a file."""

    def __init__(self, folder: Path) -> None:
        self.image = str(folder / "disk.img")
        self.point = str(folder / "disk")
        os.mkdir(self.point)
        with open(self.image, "wb") as image:
            image.truncate(512 << 20)
        _must("mkfs.ext4", "-q", "-F", self.image)

    def mount(self) -> None:
        _must("mount", "-o", "loop", self.image, self.point)

    def unmount(self) -> None:
        _must("umount", self.point)
        for _ in range(100):
            if not _must("losetup", "-j", self.image):
                return
            time.sleep(0.1)  # somebody who looks at all block devices may have it open for a moment
        raise AssertionError("the loop device was not given back")

    def shut_down(self, how: int) -> None:
        handle = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(handle)

    def free(self) -> None:
        """Whatever state a failed test left it in."""
        if os.path.ismount(self.point):
            subprocess.run(("umount", self.point), capture_output=True)
        if os.path.ismount(self.point):
            subprocess.run(("umount", "-l", self.point), capture_output=True)
        for line in subprocess.run(("losetup", "-j", self.image), capture_output=True, text=True).stdout.splitlines():
            subprocess.run(("losetup", "-d", line.partition(":")[0]), capture_output=True)
        os.unlink(self.image)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting an ext4 image needs root")
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount", "losetup") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"mounting an ext4 image needs {', '.join(missing)}")
    made = Disk(tmp_path)
    try:
        try:
            made.mount()
        except AssertionError as problem:
            pytest.skip(f"this machine can't mount an image by a loop device: {problem}")
        try:
            made.shut_down(_LOG_FLUSH)
        except OSError as problem:
            pytest.skip(f"this kernel can't shut an ext4 file system down: {problem}")
        made.unmount()
        yield made
    finally:
        made.free()


def cut_again_and_again(disk: Disk, rounds: int) -> None:
    root = f"{disk.point}/keep"
    accounts = [Account(name) for name in _WRITERS]
    known: list[Said] = []
    for n in range(rounds):
        disk.mount()
        known = check(root, accounts, known)
        writers = [Child("messages", root, "chat", account.writer, account.next_but_long) for account in accounts]
        try:
            # Whoever starts settles what the cut left: sometimes the power goes during that, mostly later.
            if n == 0 or random.random() < 0.8:
                random.choice(writers).wait_for("ack")
            time.sleep(random.uniform(0, 0.15))
            cut_ns = time.monotonic_ns()
            disk.shut_down(random.choice((_LOG_FLUSH, _NO_LOG_FLUSH)))
        finally:
            heard = [running.kill() for running in writers]
        for account, lines in zip(accounts, heard, strict=True):
            account.absorb(lines, until_ns=cut_ns)
        disk.unmount()
    disk.mount()
    known = check(root, accounts, known)
    assert any(account.acked for account in accounts), "nothing was ever acknowledged, so this proves nothing"
    with child("messages", root, "chat", "last", 1, 3) as running:
        running.finish()
    assert [s.text.split(":")[0] for s in said(root, "chat")[len(known) :]] == ["last"] * 3
    with Keep.open(root) as keep:
        assert [m["text"] for m in keep.show("chat")["messages"]] == [s.text for s in said(root, "chat")]
        assert keep.show("chat")["faults"] == []
    disk.unmount()


def check(root: str, accounts: list[Account], known: list[Said]) -> list[Said]:
    """Every acknowledged message is there, none is invented; and what was once read keeps its seq for ever."""
    found = said(root, "chat")
    for account in accounts:
        account.check(found)
    assert found[: len(known)] == known, "a message that had been read is gone, or its seq is used again"
    return found


def test_a_few_power_cuts_of_a_real_file_system_lose_no_acknowledged_turn(disk: Disk) -> None:
    """W12 T5: written, shut down, mounted again, written on."""
    cut_again_and_again(disk, 3)


@pytest.mark.slow
def test_fifty_power_cuts_of_a_real_file_system_lose_no_acknowledged_turn(disk: Disk) -> None:
    """W12 T5: fifty-five rounds on one image, two writers on one session, with and without a flush of the file system's log."""
    cut_again_and_again(disk, 55)
