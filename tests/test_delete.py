"""Delete: tombstone first, then everything; a crash at any step is finished by the next writer."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.errors import Deleted
from dreamkeep.host import RealHost

from .faults import PowerCut


class Dying(RealHost):
    """The process dies before its nth change of the disk."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise PowerCut

    def remove(self, path: str) -> None:
        self._step()
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        self._step()
        os.rmdir(path)

    def write(self, handle: int, data: bytes) -> int:
        self._step()
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        self._step()
        os.fdatasync(handle)

    def replace(self, old: str, new: str) -> None:
        self._step()
        os.replace(old, new)

    def cut(self, handle: int, size: int) -> None:
        self._step()
        os.ftruncate(handle, size)


def test_a_delete_that_dies_at_any_step_is_finished_or_never_happened(tmp_path: Path) -> None:
    """K2: and nothing of it can be seen meanwhile once the tombstone stands."""
    template = tmp_path / "template"
    with Keep.open(template) as keep:
        keep.session("stays").record("pears")
        keep.session("goes").record("xylophone")
        keep.search("xylophone")
    seen = set()
    for n in count(1):
        root = tmp_path / f"k{n}"
        shutil.copytree(template, root)
        dying = Keep.open(root, host=Dying(n))
        try:
            dying.delete("goes")
            finished = True
        except PowerCut:
            finished = False
        with Keep.open(root) as keep:
            there = {s.native_id for s in keep.sessions()}
            keep.session("stays").record("the next writer")
            assert {s.native_id for s in keep.sessions()} == there, "what was visible must not change by finishing"
        words = [p for p in root.rglob("*") if p.is_file() and b"xylophon" in p.read_bytes()]
        assert (words == []) == ("goes" not in there), (n, words)
        assert list(root.glob("state/deleting/*")) == []
        if "goes" not in there:
            with pytest.raises(Deleted), Keep.open(root) as keep:
                keep.session("goes")
        seen.add("goes" in there)
        if finished:
            break
    assert seen == {True, False} and n > 10


def test_another_process_that_still_writes_is_told(tmp_path: Path) -> None:
    """K2"""
    with Keep.open(tmp_path / "k") as mine, Keep.open(tmp_path / "k") as other:
        session = other.session("s")
        session.record("one")
        mine.delete("s")
        with pytest.raises(Deleted, match="undelete"):
            session.record("two")
        assert mine.sessions() == []
