"""Merges a source of another copy of a session's journal into ours: what we lack becomes one more generation of that source.

Database rows that we lack are added. A row that we have in another version stays as it is: nobody can tell which is newer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from dreamkeep.agents.contract import LINES, LINES_ZST, ROWS, TEXT, Source
from dreamkeep.agents.shared import database
from dreamkeep.capture.context import CaptureContext, retry
from dreamkeep.capture.ingest_file import FileIngest
from dreamkeep.capture.ingest_rows import versions
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import Bytes, frame_batches
from dreamkeep.event import Kind
from dreamkeep.host import Host
from dreamkeep.journal.places import session_id
from dreamkeep.journal.scan import read_bodies
from dreamkeep.session.raw import pack, unpack


def merge_source(context: CaptureContext, session: str, name: str, other: str) -> str:
    """`other`: the folder of the other journal. "" when everything is here now, else why not."""
    there = source_bytes.sources(context.host, other).get(name, {})
    agent, _, native = session.partition(":")
    # Its name comes from the other journal, because on this machine its path may lead elsewhere. Its lines are plain, also if the
    # file was packed.
    form = LINES if there.get("form") == LINES_ZST else str(there.get("form"))
    source = Source(agent, str(there.get("path")), form, native, str(there.get("role")), name=name)
    merge = partial(_merge_rows if form == ROWS else _merge_lines, context, source, context.folder_of(session), other)
    return retry(merge, f"{name}: another process keeps writing the same; import again")


def _merge_lines(context: CaptureContext, source: Source, ours: str, theirs: str) -> str:
    """Adds each generation with lines that none of ours has; then the union of both newest ones, so that it is the newest."""
    host = context.host
    our_generations = [lines for _, lines in source_bytes.generations(host, ours, source.name)]
    their_generations = [lines for _, lines in source_bytes.generations(host, theirs, source.name)]
    masked = _is_masked(host, ours, source.name) or _is_masked(host, theirs, source.name)
    if masked:
        known = {line for lines in our_generations for line in lines}
        their_generations = [_as_ours(lines, known) for lines in their_generations]
    missing = _missing_generations(our_generations, their_generations)
    if missing and source.form not in (LINES, TEXT):
        return f"{source.name} differs and can't be merged; this keep's version stays"
    files = FileIngest(context)
    for n, lines in enumerate(missing):
        content = Bytes(b"".join(lines), masked=masked)
        if n or our_generations:
            files.reread(source, content)
        elif problem := files.ingest(source, content).problem:
            return problem
    return ""


def _missing_generations(ours: Sequence[list[bytes]], theirs: Sequence[list[bytes]]) -> list[list[bytes]]:
    """Their older generations that have lines which we lack, and the union of both newest ones. Nothing if we have all lines."""
    known = {line for lines in ours for line in lines}
    here, there = (generations[-1] if generations else [] for generations in (ours, theirs))
    here, there = _without_begun(here, there), _without_begun(there, here)
    older = [lines for lines in theirs[:-1] if not known.issuperset(_without_begun(lines, list(known)))]
    return [*older, union(here, there)] if older or Counter(there) - Counter(here) else []


def _is_masked(host: Host, folder: str, name: str) -> bool:
    return any(word.masked_crc is not None for word in source_bytes.words(host, folder, (name,))[name].values())


def _as_ours(theirs: Sequence[bytes], ours: Collection[bytes]) -> list[bytes]:
    """If a line is masked in only one of the two journals, it is the same line: as it is here."""
    from dreamkeep.secrets.masking import mask_line

    plain = {mask_line(own): own for own in ours}
    return [line if line in ours else plain.get(line) or plain.get(mask_line(line), line) for line in theirs]


def _without_begun(lines: list[bytes], other: Sequence[bytes]) -> list[bytes]:
    """Without an unfinished last line that the other copy has whole."""
    begun = lines[-1] if lines else b"\n"
    if begun.endswith(b"\n") or not any(line.startswith(begun) and line != begun for line in other):
        return lines
    return lines[:-1]


def union(ours: Sequence[bytes], theirs: Sequence[bytes]) -> list[bytes]:
    """Theirs if it holds all of ours in order; else ours, then the lines that only they have."""
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
    """`version`: as it was in the database, also if something in the line is `masked`."""

    key: str
    line: bytes
    version: str
    masked: bool


def _merge_rows(context: CaptureContext, source: Source, ours: str, theirs: str) -> str:
    here, there = _row_lines(context.host, ours, source.name), _row_lines(context.host, theirs, source.name)
    session = session_id(source.agent, source.session)
    key = f"src:{source.name}"
    carried = context.journals.writer(session).carried(key)
    before = [context.event(Kind.SOURCE_OPENED, {**context.describe(source), "gen": 1}, {key: "rows"})] if carried is None else []
    missing = (there[row] for row in there if row not in here)
    for some in frame_batches(missing, lambda row: len(row.line)):
        masked = {one.key: one.version for one in some if one.masked}
        about: dict[str, Any] = {"source": source.name, "role": source.role, **({"versions": masked} if masked else {})}
        body = pack(about, [one.line for one in some])
        # Carries nothing: how far the database here was read stays as it is.
        context.append_if(session, [*before, context.event(Kind.SOURCE_ROWS, body)], {key: carried})
        carried, before = carried or "rows", []
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
