"""A forked Claude session begins with a copy of its parent's records, the same uuids, and no word about where they come from.

So files that begin with the same uuid are compared: as far as their records are the same, the later one is a copy. Which is the
later one is told by the first record that they don't share: the original went on earlier, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from dreamkeep.capture.content import Content, cuts
from dreamkeep.capture.content import File as OpenFile
from dreamkeep.capture.sources import LINES, Source
from dreamkeep.host import Host
from dreamkeep.session.formats.claude import chain_ids

_HEAD = 1 << 16
#: Compared at most with so many.
_TWINS = 64


class Fork(NamedTuple):
    """`undecided`: everything in it is also in the other file; whether it will be a fork, its next record tells."""

    session: str
    size: int
    evidence: str
    undecided: bool = False


class Step(NamedTuple):
    """One record of the chain: its uuid, its time, and the byte after it."""

    uuid: str
    at: str
    end: int


class Forks:
    def __init__(self, host: Host) -> None:
        self._host = host
        #: folder → first uuid → paths
        self._known: dict[str, dict[str, list[str]]] = {}

    def find(self, source: Source, content: Content) -> Fork | None:
        if source.agent != "claude" or source.role != "main" or source.form != LINES:
            return None
        path = os.path.abspath(source.path)
        first = next((step.uuid for step in _chain_of(content.read(_HEAD, 0))), "")
        twins = [other for other in self._folder(os.path.dirname(path)).get(first, []) if other != path] if first else []
        found = [fork for other in twins[:_TWINS] if (fork := self._compared(source, content, other))]
        return max(found, key=lambda fork: fork.size, default=None)

    def _folder(self, folder: str) -> dict[str, list[str]]:
        if folder not in self._known:
            firsts: dict[str, list[str]] = {}
            for name, at in self._host.entries(folder):
                if name.endswith(".jsonl") and at and not at.is_folder:
                    path = f"{folder}/{name}"
                    first = next((step.uuid for step in _chain_of(self._head(path))), "")
                    firsts.setdefault(first, []).append(path)
            self._known[folder] = firsts
        return self._known[folder]

    def _head(self, path: str) -> bytes:
        try:
            file = OpenFile(self._host, path)
        except OSError:
            return b""  # what can't be read is reported when its own turn comes
        try:
            return file.read(_HEAD, 0)
        finally:
            file.close()

    def _compared(self, source: Source, content: Content, other: str) -> Fork | None:
        try:
            theirs = OpenFile(self._host, other)
        except OSError:
            return None
        try:
            size, mine_next, theirs_next = _shared(_chain(content), _chain(theirs))
        finally:
            theirs.close()
        native = os.path.basename(other).removesuffix(".jsonl")
        if not size:
            return None
        younger = (content.mtime_ns, source.session) > (theirs.mtime_ns, native)
        # Of two equal files the one that was written later is the copy.
        is_copy = mine_next > theirs_next or (younger and not mine_next and not theirs_next)
        evidence = "its records begin with the same uuids"
        return Fork(f"claude:{native}" if is_copy else "", size if is_copy else 0, evidence, younger and not mine_next)


def _shared(mine: Iterator[Step], theirs: Iterator[Step]) -> tuple[int, str, str]:
    """Bytes of ours that are shared, and the times of the first records after that ("" when there is none)."""
    size = 0
    while True:
        a, b = next(mine, None), next(theirs, None)
        if a is None or b is None or a.uuid != b.uuid:
            return size, a.at if a else "", b.at if b else ""
        size = a.end


def _chain(content: Content) -> Iterator[Step]:
    at = 0
    for cut in cuts(content, 0, False):
        for line in cut.lines:
            at += len(line) + 1
            yield from _step(line, at)


def _chain_of(head: bytes) -> Iterator[Step]:
    for line in head.split(b"\n")[:-1]:
        yield from _step(line, 0)


def _step(line: bytes, end: int) -> Iterator[Step]:
    for uuid, at in chain_ids((line,)):
        yield Step(uuid, at or "", end)
