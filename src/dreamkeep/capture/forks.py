"""Finds the parent of a forked session.

With some agents a fork begins with a copy of its parent's records: the same uuids, and no hint where they come from. So files
that begin with the same uuid are compared. As far as their records are the same, the later file is a copy. The first record that
they don't share tells which one is later: the original went on earlier, or not at all.

Of a compacted session only what its last compaction left is copied. No session begins with a compaction, so a file that does is a
copy; its parent is the file that holds the same record further in. What the compaction kept comes after the boundary in the copy
and before it in the original: so records are copied as long as they are anywhere in the parent.
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
#: At most so many files are compared.
_TWINS = 64


class Fork(NamedTuple):
    """`size`: how many bytes are copied. `undecided`: the whole file is also in the other one, so its next record will tell."""

    session: str
    size: int
    evidence: str
    undecided: bool = False


class ChainRecord(NamedTuple):
    """A record with a uuid: its time, and where it ends in the file."""

    uuid: str
    at: str
    end: int


class Forks:
    def __init__(self, host: Host) -> None:
        self._host = host
        #: By agent; None where an agent copies nothing.
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
        """Asks another session's file. One that can't be read is reported when its own turn comes, and counts as no parent
        here."""
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
            return []  # some folders allow reading their files but not listing them
        return [f"{folder}/{name}" for name, at, _ in found if name.endswith(".jsonl") and at and not at.is_folder]

    def _compared(self, source: Source, content: Content, other: str) -> Fork | None:
        size, mine_next, theirs_next, written_ns = self._ask(
            other, lambda theirs: (*_shared(self._chain(content), self._chain(theirs)), theirs.mtime_ns), (0, "", "", 0)
        )
        native = _native(other)
        if not size:
            return None
        younger = (content.mtime_ns, source.session) > (written_ns, native)
        # Of two equal files, the one written later is the copy.
        is_copy = mine_next > theirs_next or (younger and not mine_next and not theirs_next)
        evidence = "its records begin with the same uuids"
        return Fork(f"{self._agent}:{native}" if is_copy else "", size if is_copy else 0, evidence, younger and not mine_next)

    # -- the records of a file

    def _uuids(self, content: Content) -> frozenset[str]:
        return frozenset(step.uuid for step in self._chain(content))

    def _copied(self, mine: Content, there: frozenset[str]) -> int:
        """How many bytes from the beginning of our file have all their records in the other one, too."""
        return max((step.end for step in takewhile(lambda step: step.uuid in there, self._chain(mine))), default=0)

    def _chain(self, content: Content) -> Iterator[ChainRecord]:
        at = 0
        for cut in cuts(content, 0, False):
            for line in cut.lines:
                at += len(line) + 1
                yield from self._step(line, at)

    def _chain_of(self, head: bytes, begins: bytes = b"") -> Iterator[ChainRecord]:
        """`begins`: bytes that must stand in the first record."""
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
    """Another session's file can't be read; the one being captured can."""


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
    """How many bytes of ours are shared, and the times of the first records after them ("" if there are none)."""
    size = 0
    while True:
        a, b = next(mine, None), next(theirs, None)
        if a is None or b is None or a.uuid != b.uuid:
            return size, a.at if a else "", b.at if b else ""
        size = a.end
