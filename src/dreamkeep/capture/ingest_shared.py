"""A file of lines of which each belongs to some session (Codex' names of threads) → journal.

Each session gets its own lines, as if they were a file of its own: so all that holds for files holds for them. Only sessions that
are here get any. Lines that say of no session are nobody's, and stay where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from dreamkeep.agents.contract import Source
from dreamkeep.agents.registry import sharing
from dreamkeep.capture.sources.content import Bytes, Content, PlainFile, cuts
from dreamkeep.capture.sources.source_cache import FileLook, SourceState
from dreamkeep.errors import Deleted, DreamkeepError
from dreamkeep.host import Stat
from dreamkeep.journal.places import folder_of

if TYPE_CHECKING:
    from dreamkeep.capture.ingest import Ingest, IngestOutcome

#: It is read whole.
_LARGEST = 64 << 20


def take_shared(ingest: Ingest, source: Source, at: Stat) -> Iterator[IngestOutcome]:
    """One outcome for each session that the file says of and that is here."""
    from dreamkeep.capture.ingest import IngestOutcome

    file = PlainFile(ingest.host, source.path)
    try:
        found = _by_session(source, file)
    finally:
        file.close()
    seen = ingest.cache.get(source.path)
    before = (seen.rows if seen else None) or {}
    marks: dict[str, str] = {}
    look: FileLook | None = FileLook.of(at)
    for native, lines in found.items():
        content = Bytes(b"".join(lines), file.inode, file.mtime_ns)
        mark = f"{content.size} {crc32(b''.join(lines))}"
        journal = os.path.basename(folder_of(f"{source.agent}:{native}"))
        if before.get(native) == mark and not ingest.again and ingest.cache.has_journal(source.agent, journal):
            marks[native] = mark
            yield IngestOutcome(source.agent, source.path, f"{source.agent}:{native}", state="unchanged")
            continue
        outcome = _isolated(ingest, source._replace(session=native), content)
        if outcome.state in ("failed", "waiting", "excluded", "deleted", "paused"):
            look = None  # whoever comes later must find its lines here: the file is looked at each time
        else:
            marks[native] = mark
        if outcome.state != "waiting":
            yield outcome
    ingest.cache.put(source.path, SourceState(source.agent, "", look, None, "", marks, "", source.role))


def _isolated(ingest: Ingest, source: Source, content: Content) -> IngestOutcome:
    from dreamkeep.capture.ingest import IngestOutcome

    named = f"{source.agent}:{source.session}"
    try:
        return ingest.take_whole(source, content)
    except Deleted:
        return IngestOutcome(source.agent, source.path, named, state="deleted")
    except (DreamkeepError, OSError) as problem:
        return IngestOutcome(source.agent, source.path, named, state="failed", problem=str(problem))
    except Exception as problem:  # lines hold anything: whatever they do to our code is this session's failure, and no other's
        return IngestOutcome(source.agent, source.path, named, state="failed", problem=f"{type(problem).__name__}: {problem}")


def _by_session(source: Source, file: Content) -> dict[str, list[bytes]]:
    """Whole lines only: what is still being written comes next time."""
    shared = sharing(source.agent)
    if file.size > _LARGEST or shared is None:
        raise OSError(27, f"a file of {file.size} bytes is too large to read at once", source.path)
    found: dict[str, list[bytes]] = {}
    for cut in cuts(file, 0, False):
        lines = cut.lines[:-1] if cut.more else cut.lines
        for line in lines:
            if native := shared.owner(line):
                found.setdefault(native, []).append(line + b"\n")
    return found
