"""Small files of an agent. One that can't be read counts as empty."""

from __future__ import annotations

import json
from typing import Any

from dreamkeep.host import Host, read_file


def bytes_in(host: Host, path: str) -> bytes:
    try:
        return read_file(host, path)
    except OSError:
        return b""


def parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
