"""Searches every byte of a keep for words that must not be in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import zstandard

from dreamkeep.host import RealHost
from dreamkeep.journal import parts


def every_byte(root: str) -> Iterator[tuple[str, bytes]]:
    """Of each file of a keep, unpacked where it is packed."""
    for folder, _, names in os.walk(root):
        for name in names:
            data = Path(folder, name).read_bytes()
            if name.endswith(".zst"):
                data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
            yield f"{folder}/{name}", data


def leaks(root: str, *secrets: str) -> list[tuple[str, str]]:
    forms = {
        form for secret in secrets for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    }
    return [(path, form) for path, data in every_byte(root) for form in forms if form.encode() in data]


def holding(root: Path, word: bytes) -> list[str]:
    """The files that contain the word, as they are or unpacked, and the folders of journals with an event that does."""
    found = [str(path) for path in root.rglob("*") if path.is_file() and word in path.read_bytes()]
    host = RealHost()
    for folder in {path.parent for path in root.rglob("*.jsonl*")}:
        found += [str(folder) for n in parts.numbers(host, str(folder)) if word in b"".join(parts.lines(host, str(folder), n))]
    return found
