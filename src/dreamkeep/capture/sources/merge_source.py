"""What another copy of a session's journal has of a source, and ours has not: taken over as one more generation of that source.

Rows of a database that are not here at all are added; one that is here in another version stays: nobody can tell which is newer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from dreamkeep.agents.contract import LINES, LINES_ZST, ROWS, TEXT, Source
from dreamkeep.agents.shared import database
from dreamkeep.capture.ingest import Ingest, Overtaken
from dreamkeep.capture.ingest_rows import versions
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import FRAME, Bytes
from dreamkeep.event import Kind
from dreamkeep.host import Host
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.scan import read_bodies
from dreamkeep.session.raw import pack, unpack

_TRIES = 8


def regain(host: Host, root: str, ingest: Ingest, session: str, name: str, other: str) -> str:
    """`other`: the folder of the other journal. "" when all was here or is now, else why not."""
    said = source_bytes.sources(host, other).get(name, {})
    agent, _, native = session.partition(":")
    # Known by the name it has there: on this machine its path may lead elsewhere. Whatever it was packed in, here it is plain.
    form = LINES if said.get("form") == LINES_ZST else str(said.get("form"))
    source = Source(agent, str(said.get("path")), form, native, str(said.get("role")), name=name)
    ours = f"{root}/{folder_of(session)}"
    for _ in range(_TRIES):
        try:
            if form == ROWS:
                return _rows(host, ingest, session, source, ours, other)
            return _lines(host, ingest, source, ours, other)
        except Overtaken:
            continue
    return f"{name}: another process keeps writing the same; import again"


def _lines(host: Host, ingest: Ingest, source: Source, ours: str, theirs: str) -> str:
    """Every generation that has something which none of ours has; then what both were last, so that this stays the newest."""
    told = [lines for _, lines in source_bytes.generations(host, ours, source.name)]
    theirs_told = [lines for _, lines in source_bytes.generations(host, theirs, source.name)]
    known = {line for lines in told for line in lines}
    masked = _is_masked(host, ours, source.name) or _is_masked(host, theirs, source.name)
    if masked:
        theirs_told = [_as_ours(lines, known) for lines in theirs_told]
    here, there = (found[-1] if found else [] for found in (told, theirs_told))
    here, there = _without_begun(here, there), _without_begun(there, here)
    older = [lines for lines in theirs_told[:-1] if not known.issuperset(_without_begun(lines, list(known)))]
    if not older and not Counter(there) - Counter(here):
        return ""
    if source.form not in (LINES, TEXT):
        return f"{source.name} differs and can't be merged; this keep's version stays"
    for lines in (*older, union(here, there)):
        content = Bytes(b"".join(lines), masked=masked)
        if not told:
            if problem := ingest.take_whole(source, content).problem:
                return problem
        else:
            ingest.take_again(source, content)
        told.append(lines)
    return ""


def _is_masked(host: Host, folder: str, name: str) -> bool:
    return any(word.masked_crc is not None for word in source_bytes.words(host, folder, (name,))[name].values())


def _as_ours(theirs: Sequence[bytes], ours: Collection[bytes]) -> list[bytes]:
    """A line in which only one of the two had something masked is one line: as it is here."""
    from dreamkeep.secrets.masking import mask_line

    plain = {mask_line(own): own for own in ours}
    return [line if line in ours else plain.get(line) or plain.get(mask_line(line), line) for line in theirs]


def _without_begun(lines: list[bytes], other: Sequence[bytes]) -> list[bytes]:
    """Without a last line that was still being written, if the other copy has it whole."""
    begun = lines[-1] if lines else b"\n"
    if begun.endswith(b"\n") or not any(line.startswith(begun) and line != begun for line in other):
        return lines
    return lines[:-1]


def union(ours: Sequence[bytes], theirs: Sequence[bytes]) -> list[bytes]:
    """Theirs where it holds all of ours in order; else ours, then what only they have."""
    left = iter(theirs)
    if all(line in left for line in ours):
        return list(theirs)
    known = Counter(ours)
    more = []
    for line in theirs:
        if known[line]:
            known[line] -= 1
        else:
            more.append(line)
    ended = [line if line.endswith(b"\n") else line + b"\n" for line in ours]
    return [*ended, *more]


class _KeptRow(NamedTuple):
    """`version`: the one that was in the database, also where something is `masked` in the line."""

    key: str
    line: bytes
    version: str
    masked: bool


def _rows(host: Host, ingest: Ingest, session: str, source: Source, ours: str, theirs: str) -> str:
    here, there = _row_lines(host, ours, source.name), _row_lines(host, theirs, source.name)
    key = f"src:{source.name}"
    word = ingest.journals.writer(session).carried(key)
    before = [ingest.event(Kind.SOURCE_OPENED, {**ingest.about(source), "gen": 1}, {key: "rows"})] if word is None else []
    for some in _batches([there[row] for row in there if row not in here]):
        masked = {one.key: one.version for one in some if one.masked}
        about: dict[str, Any] = {"source": source.name, "role": source.role, **({"versions": masked} if masked else {})}
        body = pack(about, [one.line for one in some])
        # Carries nothing: how far the database here was read stays as it is.
        ingest.append_if(session, [*before, ingest.event(Kind.SOURCE_ROWS, body)], {key: word})
        word, before = word or "rows", []
    differ = sum(1 for row, one in there.items() if row in here and one.version != here[row].version)
    return f"{source.name}: {differ} rows differ; this keep's version stays" if differ else ""


def _row_lines(host: Host, folder: str, name: str) -> dict[str, _KeptRow]:
    """Each row's last line."""
    found: dict[str, _KeptRow] = {}
    for _, raw in read_bodies(host, folder, (Kind.SOURCE_ROWS,)):
        if b'"source":"%b"' % name.encode() in raw[:200]:
            known = versions(raw)
            for line in unpack(raw):
                key, version = database.key_of(line)
                found[key] = _KeptRow(key, line, known.get(key, version), key in known)
    return found


def _batches(found: Sequence[_KeptRow]) -> list[list[_KeptRow]]:
    batches: list[list[_KeptRow]] = []
    size = FRAME
    for one in found:
        if size >= FRAME:
            batches.append([])
            size = 0
        batches[-1].append(one)
        size += len(one.line)
    return batches
