"""For several discoveries: the files in a folder, and how a file begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents.contract import ROWS, Source
from dreamkeep.agents.shared.values import table
from dreamkeep.host import Host


def databases(host: Host, agent: str, place: str, below: Callable[[], Iterable[str]]) -> Iterator[Source]:
    """The place itself, if it is a file; else the files `below` it that exist."""
    at = host.stat(place)
    if at is None:
        return
    for path in below() if at.is_folder else [place]:
        found = host.stat(path)
        if found is not None and not found.is_folder:
            yield Source(agent, path, ROWS)


def claimed(inside: Iterable[tuple[str, bool]], claims: Callable[[str], Source | None]) -> Iterator[Source]:
    """The files of `inside` that are sources, by their names."""
    for path, is_folder in inside:
        found = None if is_folder else claims(path)
        if found:
            yield found


def first_line(head: bytes) -> Mapping[str, Any]:
    """A file's first line as JSON; empty if it is no object, or cut off."""
    try:
        return table(json.loads(head.partition(b"\n")[0]))
    except (ValueError, RecursionError):
        return {}


def inside(host: Host, folder: str, problems: list[OSError]) -> list[tuple[str, bool]]:
    """(path, whether it is a folder) for each entry of a folder. A missing folder has none; an unreadable one is a problem."""
    try:
        return [(f"{folder}/{entry.name}", entry.at.is_folder) for entry in host.entries(folder) if entry.at]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        problems.append(problem)
        return []
