"""What tests of snapshots share: made archives, copied keeps, and all that a keep must still hold."""

from __future__ import annotations

import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from dreamkeep.recovery.snapshot.file import Header, Packer


def truth(root: Path) -> dict[str, bytes]:
    """What is no view, cache or lock; cold parts as what they hold."""
    found = {}
    for folder in ("journal", "aside", "pages", "spool"):
        for path in (root / folder).rglob("*"):
            if path.is_file() and path.name not in ("lock", "witness", "witness.lock"):
                name = str(path.relative_to(root)).removesuffix(".zst")
                found[name] = thawed(path)
    return {**found, "keep.toml": (root / "keep.toml").read_bytes()} if (root / "keep.toml").exists() else found


def thawed(path: Path) -> bytes:
    import zstandard

    if path.suffix != ".zst":
        return path.read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


def made(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()

    def write(data: bytes) -> None:
        out.write(data)

    packer = Packer(write)
    for name, data in files.items():
        packer.add(Header(name, len(data), hashlib.sha256(data).hexdigest()), [data])
    packer.end()
    return out.getvalue()


def copied(full: Path, base: Path) -> Path:
    shutil.copytree(full, base)
    return base


def texts(keep: Keep, session: str) -> list[str]:
    return [m["text"] for m in keep.show(session)["messages"]]


def write_on(root: str, stop: Any) -> None:
    with Keep.open(root) as keep:
        n = 0
        while not stop.is_set():
            keep.session("busy").record(f"turn {n}", ("assistant", "y" * 5000))
            n += 1
