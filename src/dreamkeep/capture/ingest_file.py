"""One file of one session → its journal: what was appended since, or what a rewritten file has that the journal lacks.

Each session's journal carries, for each of its sources, how far it was read and how to recognise the file (`SourceCursor`).
Frames and cursor are one append, made only if the journal still carries the cursor it was based on: so two ingests at once add
nothing twice, and a crash in between loses nothing. If the agent cut, rewrote or moved its file, that is journaled, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from zlib import crc32

from dreamkeep.agents.contract import BESIDE, DOCUMENT, LINES_ZST, TEXT, Source
from dreamkeep.agents.facts import Fact
from dreamkeep.agents.registry import sharing
from dreamkeep.capture.context import (
    OVERTAKEN,
    CaptureContext,
    IngestOutcome,
    Overtaken,
    isolate,
    journal_name,
    outcome_of,
    retry,
)
from dreamkeep.capture.forks import Fork, Forks
from dreamkeep.capture.quota import Paused
from dreamkeep.capture.session_start import facts_in
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import (
    Bytes,
    Content,
    PlainFile,
    SourceCursor,
    Unpacked,
    cuts,
    goes_on,
    iter_blocks,
    untouched,
    what_happened,
)
from dreamkeep.capture.sources.copying import Copying, ReadSummary
from dreamkeep.capture.sources.source_cache import FileLook, SourceState
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, Stat
from dreamkeep.journal.places import session_id

_BELOW_ITS_PARENT = "its file lies where its parent's are"

#: It is read whole.
_LARGEST = 64 << 20

Progress = Callable[[int], None]


def no_progress(offset: int) -> None:
    pass


class FileIngest:
    def __init__(self, context: CaptureContext) -> None:
        self._context = context
        self._journals = context.journals
        self._forks = Forks(context.host)
        #: Of the last source that was read to its end.
        self.summary = ReadSummary()

    def look_at_forks_anew(self) -> None:
        """What was found out about other files may have changed since the last round."""
        self._forks = Forks(self._context.host)

    def open(self, source: Source) -> Content:
        if source.form != LINES_ZST:
            return PlainFile(self._context.host, source.path)
        # Never less than was captured of its session: it would look as if the file had shrunk.
        carried = self._journals.writer(session_id(source.agent, source.session)).all_carried() if source.session else {}
        cursors = (SourceCursor.parse(value) for key, value in carried.items() if key.startswith("src:"))
        least = max((cursor.offset for cursor in cursors if cursor), default=0)

        def most(packed: int) -> int | None:
            ceiling = self._context.limits.most_unpacked(packed)
            return None if ceiling is None else max(ceiling, least)

        return Unpacked(self._context.host, source.path, most)

    def ingest(self, source: Source, content: Content, step: Progress = no_progress) -> IngestOutcome:
        """What is new of one source of one session."""
        self.summary = ReadSummary()
        outcome = outcome_of(source)
        if source.role in BESIDE and self._context.host.stat(self._context.folder_of(outcome.session)) is None:
            return outcome._replace(state="waiting")  # its session is not here, and may never be meant to be
        overtaken = outcome._replace(state="failed", problem=OVERTAKEN)
        return retry(lambda: self._attempt(source, content, step), overtaken)

    def _attempt(self, source: Source, content: Content, step: Progress) -> IngestOutcome:
        context, session = self._context, session_id(source.agent, source.session)
        name = context.name_of(source)
        carried = self._journals.writer(session).carried(f"src:{name}")
        cursor = SourceCursor.parse(carried)
        outcome = outcome_of(source, state="grew")
        if cursor is None and _is_blank(content):
            return outcome._replace(state="empty")
        opening = context.openings.of(session, lambda: facts_in(source, content) if source.form != TEXT else (), source.path)
        if opening is None:
            return outcome._replace(state="excluded")
        copied = 0
        if cursor is None:
            cursor, state, event = self._first_cursor(source, session, content)
            fork = self._forks.find(source, content) if not cursor.offset else None
            if fork and fork.undecided and context.is_young(content):
                return outcome._replace(state="waiting")  # so far nothing but a copy of another: it may be a fork being made
            copied = fork.size if fork else 0
            opening = [*opening, *self._lineage(source, fork), event]
            outcome = outcome._replace(state=state)
        run = Copying(context, source, session, name, content, cursor, carried, opening)
        try:
            state = self._read(run, outcome.state, copied, step)
            if state == "waiting" or (context.masks and carried is None and not run.cursor.offset):
                return outcome._replace(state="waiting")  # nothing but a line that is still being written
            run.flush()
        except Paused as why:
            return context.pause(outcome._replace(new_bytes=run.kept_bytes, new_events=run.new_events), why)
        self.summary = run.summary._replace(cursor=str(run.cursor))
        return outcome._replace(new_bytes=run.new_bytes, new_events=run.new_events, state=state)

    def _read(self, run: Copying, state: str, copied: int, step: Progress) -> str:
        source, content, cursor = run.source, run.content, run.cursor
        if source.form == DOCUMENT:
            state = run.document(state)
            if state == "waiting":
                return state
        elif cursor.offset and not goes_on(content, cursor):
            state = what_happened(content, cursor)
            run.rewritten(state, step)
        elif content.size > cursor.offset:
            run.grown(step, copied)
            if state == "grew" and not run.new_bytes:
                return "unchanged"  # only a line that is still being written
        elif not untouched(content, cursor):
            state = "rewritten"
            run.rewritten(state, step)
        else:
            return state if state == "moved" else "unchanged"
        if state != "unchanged" and source.role not in BESIDE:
            run.pause_if_full()
            start = cursor.offset if state == "grew" else 0
            self._context.openings.resume_if(run.session, lambda: facts_in(source, content, start))
        return state

    def _first_cursor(self, source: Source, session: str, content: Content) -> tuple[SourceCursor, str, Event]:
        """Where reading begins: at zero; or, if the file was only moved (archived, compressed), where it was."""
        name = self._context.name_of(source)
        # A moved transcript may have another role (set aside as unreadable); what lies beside it is many, and written once.
        alike = f"src:{source.role}-" if source.role in BESIDE else "src:"
        for key, value in self._journals.writer(session).all_carried().items():
            known = SourceCursor.parse(value) if key.startswith(alike) else None
            if known and source.role in BESIDE and known.offset != content.size:
                continue
            if known and known.offset and key != f"src:{name}" and goes_on(content, known) and self._left(session, key[4:]):
                moved = known._replace(inode=content.inode, state="")
                body = {**self._context.describe(source), "what": "moved", "was": key[4:], "gen": known.generation}
                # The old name has no cursor any more: a file that comes back there has moved once more.
                return moved, "moved", self._context.event(Kind.SOURCE_CHANGED, body, {f"src:{name}": str(moved), key: "moved"})
        cursor, opened = self._opened(source, content)
        return cursor, "new", opened

    def _opened(self, source: Source, content: Content) -> tuple[SourceCursor, Event]:
        context, cursor = self._context, SourceCursor(1, 0, 0, content.inode, 0, "-", "-")
        body = {**context.describe(source), "gen": 1}
        return cursor, context.event(Kind.SOURCE_OPENED, body, {f"src:{context.name_of(source)}": str(cursor)})

    def _left(self, session: str, name: str) -> bool:
        """Whether nothing is any more where that source was."""
        context = self._context
        path = source_bytes.sources(context.host, context.folder_of(session)).get(name, {}).get("path", "")
        # A path that was no UTF-8 can't be looked up by what the journal has of it.
        if not path or "\ufffd" in path or not is_gone(context.host, path):
            return False
        context.cache.forget(path)
        return True

    def _lineage(self, source: Source, fork: Fork | None) -> list[Event]:
        edges = []
        if source.parent:
            edges.append(self._edge("subagent", f"{source.agent}:{source.parent}", _BELOW_ITS_PARENT))
        if fork and fork.session:
            edges.append(self._edge("fork", fork.session, fork.evidence))
        return edges

    def _edge(self, kind: str, other: str, evidence: str) -> Event:
        body = {"kind": kind, "session": other, "evidence": evidence}
        return self._context.event(Kind.LINEAGE_FOUND, body, {f"lineage:{kind}": other})

    # -- for a journal that lost something

    def reread(self, source: Source, content: Content) -> None:
        """What the journal lost of a source, from its file: a new generation, in which lines that can still be read are named.
        A source of which nothing is left, and that never had another generation, is read as if it were new."""
        context, session = self._context, session_id(source.agent, source.session)
        name = context.name_of(source)
        carried = self._journals.writer(session).carried(f"src:{name}")
        cursor = SourceCursor.parse(carried)
        if cursor is None:
            raise Overtaken
        if cursor.generation == 1 and not source_bytes.lines(context.host, context.folder_of(session), name):
            cursor, opened = self._opened(source, content)
            run = Copying(context, source, session, name, content, cursor, carried, [opened])
            run.document("new") if source.form == DOCUMENT else run.grown(no_progress)
        else:
            run = Copying(context, source, session, name, content, cursor, carried, ())
            run.reread_document("mended") if source.form == DOCUMENT else run.rewritten("mended", no_progress)
        run.flush()

    def repeat_opening(self, session: str, facts: Iterable[Fact]) -> None:
        """How a session began, for a journal that lost it and still carries it. `facts`: of its transcript."""
        parent = self._journals.writer(session).carried("lineage:subagent")
        edges = [self._edge("subagent", str(parent), _BELOW_ITS_PARENT)._replace(carry=None)] if parent else []
        self._journals.append(session, [*self._context.openings.repeat_opening(session, facts), *edges])

    def repeat_source_opened(self, source: Source) -> None:
        """What a source is, for a journal that lost it and still carries how far it was read."""
        session, key = session_id(source.agent, source.session), f"src:{self._context.name_of(source)}"
        carried = self._journals.writer(session).carried(key)
        cursor = SourceCursor.parse(carried)
        if cursor is None:
            raise Overtaken
        event = self._context.event(Kind.SOURCE_OPENED, {**self._context.describe(source), "gen": cursor.generation})
        self._context.append_if(session, [event], {key: carried})


# -- a file of lines of which each belongs to some session (Codex' names of threads)


def take_shared(context: CaptureContext, files: FileIngest, source: Source, at: Stat) -> Iterator[IngestOutcome]:
    """One outcome for each session that the file names and that is here. Its lines are ingested as if they were a file of their
    own, so all that holds for files holds for them. Lines that name no session are left out."""
    file = PlainFile(context.host, source.path)
    try:
        lines_by_session = _by_session(source, file)
    finally:
        file.close()
    seen = context.cache.get(source.path)
    before = (seen.rows if seen else None) or {}
    marks: dict[str, str] = {}
    look: FileLook | None = FileLook.of(at)
    for native, lines in lines_by_session.items():
        own, data = source._replace(session=native), b"".join(lines)
        mark = f"{len(data)} {crc32(data)}"
        if (
            before.get(native) == mark
            and not context.force
            and context.cache.has_journal(source.agent, journal_name(source.agent, native))
        ):
            marks[native] = mark
            yield outcome_of(own, state="unchanged")
            continue
        outcome = isolate(own, partial(files.ingest, own, Bytes(data, file.inode, file.mtime_ns)))
        if outcome.state in ("failed", "waiting", "excluded", "deleted", "paused"):
            look = None  # whoever comes later must find its lines here: the file is looked at each time
        else:
            marks[native] = mark
        if outcome.state != "waiting":
            yield outcome
    context.cache.put(source.path, SourceState(source.agent, "", look, None, "", marks, "", source.role))


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


def is_gone(host: Host, path: str) -> bool:
    try:
        return host.stat(path) is None
    except OSError:
        return False  # can't be looked at: that is not gone


def _is_blank(content: Content) -> bool:
    """Nothing but blanks and line feeds."""
    return not any(block.strip() for block in iter_blocks(content))
