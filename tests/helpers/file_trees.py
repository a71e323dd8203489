"""Folders as they are on disk, to compare before and after."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any


def tree(*roots: str | Path) -> dict[str, Any]:
    """Every name below, with its bytes and times."""
    found: dict[str, Any] = {}
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in [".", *names]:
                path = os.path.join(folder, name)
                data = b"" if os.path.isdir(path) or os.path.islink(path) else Path(path).read_bytes()
                found[path] = (hashlib.sha256(data).hexdigest(), os.lstat(path).st_mtime_ns)
    return found
