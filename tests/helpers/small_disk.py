"""A small file system in memory, and filling it up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def mount_tmpfs(folder: Path, options: str) -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    point = str(folder / "small")
    os.mkdir(point)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"this machine can't mount a tmpfs: {made.stderr.strip()}")
    try:
        yield point
    finally:
        for how in ((), ("-l",)):
            if os.path.ismount(point):
                subprocess.run(["umount", *how, point], capture_output=True)


def fill(path: str, keep_free: int = 0) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"b" * 4096)
        except OSError:
            pass  # full
    if keep_free:
        os.truncate(path, max(0, os.stat(path).st_size - keep_free))
