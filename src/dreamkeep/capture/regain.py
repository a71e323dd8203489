"""What another copy of a session's journal has of a source, and ours has not: taken over as one more generation of that source."""

from __future__ import annotations

from collections.abc import Sequence

from dreamkeep.capture import rejoin
from dreamkeep.capture.ingest import Ingest
from dreamkeep.capture.sources import LINES, LINES_ZST, TEXT, Source
from dreamkeep.host import Host
from dreamkeep.journal.places import folder_of


class Bytes:
    """What a source would hold, without the file."""

    inode = mtime_ns = 0

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        pass


def regain(host: Host, root: str, ingest: Ingest, session: str, name: str, other: str) -> str:
    """`other`: the folder of the other journal. "" when all was here or is now, else why not."""
    ours, theirs = (rejoin.lines(host, folder, name) for folder in (f"{root}/{folder_of(session)}", other))
    if set(theirs) <= set(ours):
        return ""
    said = rejoin.sources(host, other).get(name, {})
    if said.get("form") not in (LINES, LINES_ZST, TEXT):
        return f"{name} differs and can't be joined: what is here stays"
    agent, _, native = session.partition(":")
    form = TEXT if said["form"] == TEXT else LINES  # whatever it was packed in, here it is plain
    source = Source(agent, str(said["path"]), form, native, str(said["role"]))
    content = Bytes(b"".join(union(ours, theirs)))
    if ours:
        ingest.take_again(source, content)
        return ""
    return ingest.take_whole(source, content).problem or ""


def union(ours: Sequence[bytes], theirs: Sequence[bytes]) -> list[bytes]:
    """Theirs where it holds all of ours in order; else ours, then what only they have."""
    left = iter(theirs)
    if all(line in left for line in ours):
        return list(theirs)
    known = set(ours)
    ended = [line if line.endswith(b"\n") else line + b"\n" for line in ours]
    return [*ended, *(line for line in theirs if line not in known)]
