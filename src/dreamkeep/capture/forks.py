"""A forked session of some agents begins with a copy of its parent's records: the same uuids, and no word about whence.

So files that begin with the same uuid are compared: as far as their records are the same, the later one is a copy. Which is the
later one is told by the first record that they don't share: the original went on earlier, or not at all.

Of a compacted session only what its last compaction left is copied. No session begins with a compaction, so a file that does is
the copy; its parent is the one that holds that record further in. What the compaction kept stands behind the boundary in the copy
and before it in the original: so as far as its records are anywhere in the parent, they are copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple, TypeVar

from dreamkeep.agents.contract import LINES, ForkedRecords, Source
from dreamkeep.agents.registry import find, load
from dreamkeep.capture.sources.content import Content, PlainFile, cuts
from dreamkeep.host import Host

Answer = TypeVar("Answer")

_HEAD = 1 << 16
#: Compared at most with so many.
_TWINS = 64


class Fork(NamedTuple):
    """`undecided`: everything in it is also in the other file; whether it will be a fork, its next record tells."""

    session: str
    size: int
    evidence: str
    undecided: bool = False


class ChainRecord(NamedTuple):
    """One record of the chain: its uuid, its time, and the byte after it."""

    uuid: str
    at: str
    end: int


class Forks:
    def __init__(self, host: Host) -> None:
        self._host = host
        #: agent → what is known of its forks; None where an agent copies nothing.
        self._agents: dict[str, _AgentForks | None] = {}

    def find(self, source: Source, content: Content) -> Fork | None:
        if source.role != "main" or source.form != LINES:
            return None
        if source.agent not in self._agents:
            agent = find(source.agent)
            records: ForkedRecords | None = load(agent, "forks") if agent and agent.forks else None
            self._agents[source.agent] = _AgentForks(self._host, source.agent, records) if records else None
        forks = self._agents[source.agent]
        return forks.find(source, content) if forks else None


class _AgentForks:
    def __init__(self, host: Host, agent: str, records: ForkedRecords) -> None:
        self._host = host
        self._agent = agent
        self._records = records
        #: folder → first uuid → paths
        self._known: dict[str, dict[str, list[str]]] = {}

    def find(self, source: Source, content: Content) -> Fork | None:
        path = os.path.abspath(source.path)
        if fork := self._of_compacted(path, content):
            return fork
        first = next((step.uuid for step in self._chain_of(content.read(_HEAD, 0))), "")
        twins = [other for other in self._folder(os.path.dirname(path)).get(first, []) if other != path] if first else []
        found = [fork for other in twins[:_TWINS] if (fork := self._compared(source, content, other))]
        return max(found, key=lambda fork: fork.size, default=None)

    def _of_compacted(self, path: str, content: Content) -> Fork | None:
        boundary = next((step.uuid for step in self._chain_of(content.read(_HEAD, 0), begins=self._records.BOUNDARY)), "")
        if not boundary:
            return None
        firsts = self._folder(os.path.dirname(path))
        others = [other for first, paths in firsts.items() if first != boundary for other in paths if other != path]
        for other in others:
            there = self._ask(other, self._uuids, frozenset[str]())
            if boundary in there:
                evidence = "its records begin with a compaction of that session"
                return Fork(f"{self._agent}:{_native(other)}", self._copied(content, there), evidence)
        return None

    def _ask(self, path: str, question: Callable[[Content], Answer], otherwise: Answer) -> Answer:
        """Of another session's file. One that can't be read is reported when its own turn comes, and is no fork's origin here."""
        try:
            file = _OtherFile(self._host, path)
        except OSError:
            return otherwise
        try:
            return question(file)
        except _Unreadable:
            return otherwise
        finally:
            file.close()

    def _folder(self, folder: str) -> dict[str, list[str]]:
        if folder not in self._known:
            firsts: dict[str, list[str]] = {}
            for path in self._transcripts(folder):
                first = next((step.uuid for step in self._chain_of(self._ask(path, _head, b""))), "")
                firsts.setdefault(first, []).append(path)
            self._known[folder] = firsts
        return self._known[folder]

    def _transcripts(self, folder: str) -> list[str]:
        try:
            found = self._host.entries(folder)
        except OSError:
            return []  # a folder may let its files be read and not be listed
        return [f"{folder}/{name}" for name, at, _ in found if name.endswith(".jsonl") and at and not at.is_folder]

    def _compared(self, source: Source, content: Content, other: str) -> Fork | None:
        size, mine_next, theirs_next, written_ns = self._ask(
            other, lambda theirs: (*_shared(self._chain(content), self._chain(theirs)), theirs.mtime_ns), (0, "", "", 0)
        )
        native = _native(other)
        if not size:
            return None
        younger = (content.mtime_ns, source.session) > (written_ns, native)
        # Of two equal files the one that was written later is the copy.
        is_copy = mine_next > theirs_next or (younger and not mine_next and not theirs_next)
        evidence = "its records begin with the same uuids"
        return Fork(f"{self._agent}:{native}" if is_copy else "", size if is_copy else 0, evidence, younger and not mine_next)

    # -- the records of a file

    def _uuids(self, content: Content) -> frozenset[str]:
        return frozenset(step.uuid for step in self._chain(content))

    def _copied(self, mine: Content, there: frozenset[str]) -> int:
        """Bytes of ours, from the beginning, whose records are all there, too."""
        return max((step.end for step in takewhile(lambda step: step.uuid in there, self._chain(mine))), default=0)

    def _chain(self, content: Content) -> Iterator[ChainRecord]:
        at = 0
        for cut in cuts(content, 0, False):
            for line in cut.lines:
                at += len(line) + 1
                yield from self._step(line, at)

    def _chain_of(self, head: bytes, begins: bytes = b"") -> Iterator[ChainRecord]:
        """`begins`: only if that stands in the first record of the chain."""
        for line in head.split(b"\n")[:-1]:
            for step in self._step(line, 0):
                if begins not in line:
                    return
                begins = b""
                yield step

    def _step(self, line: bytes, end: int) -> Iterator[ChainRecord]:
        for uuid, at in self._records.chain_ids((line,)):
            yield ChainRecord(uuid, at or "", end)


class _Unreadable(Exception):
    """Another session's file, not the one that is being captured."""


class _OtherFile(PlainFile):
    def read(self, size: int, offset: int) -> bytes:
        try:
            return super().read(size, offset)
        except OSError as problem:
            raise _Unreadable from problem


def _head(content: Content) -> bytes:
    return content.read(_HEAD, 0)


def _native(path: str) -> str:
    return os.path.basename(path).removesuffix(".jsonl")


def _shared(mine: Iterator[ChainRecord], theirs: Iterator[ChainRecord]) -> tuple[int, str, str]:
    """Bytes of ours that are shared, and the times of the first records after that ("" when there is none)."""
    size = 0
    while True:
        a, b = next(mine, None), next(theirs, None)
        if a is None or b is None or a.uuid != b.uuid:
            return size, a.at if a else "", b.at if b else ""
        size = a.end
