"""Transcripts already on disk → journal, from a remembered place: all sources, one after the other.

A source that looks as it did is not opened. A bad one is reported, and the rest go on. Whatever an agent does to its files,
nothing that was captured is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from dreamkeep.agents.contract import MANY, ROWS, SHARED, Source
from dreamkeep.agents.registry import discovery
from dreamkeep.capture.context import (
    CaptureContext,
    IngestOutcome,
    journal_name,
    limited_key,
    outcome_of,
    problem_text,
    session_of,
)
from dreamkeep.capture.find import refusal
from dreamkeep.capture.ingest_file import FileIngest, is_gone, no_progress, take_shared
from dreamkeep.capture.sources.content import SourceCursor, Unpacked
from dreamkeep.capture.sources.copying import ReadSummary
from dreamkeep.capture.sources.source_cache import FileLook, SourcePause, SourceState
from dreamkeep.errors import Deleted, DreamkeepError
from dreamkeep.event import Ids, Kind
from dreamkeep.host import Host, Stat
from dreamkeep.journal.writers import JournalWriters

Progress = Callable[[int, int], None]


class Ingest:
    """Not for several threads at once; any number of processes."""

    def __init__(
        self, host: Host, root: str, journals: JournalWriters, ids: Ids, *, exclude: Sequence[str] = (), force: bool = False
    ) -> None:
        self.context = CaptureContext(host, root, journals, ids, exclude=exclude, force=force)
        self.files = FileIngest(self.context)
        self.cache = self.context.cache
        self._host = host
        #: Sources that wait for space in the keep: how each looked, and its session.
        self._paused: dict[str, tuple[FileLook, str]] = {}

    # -- all of them

    def run(
        self,
        sources: Iterable[Source],
        progress: Progress | None = None,
        *,
        glanced: Mapping[str, Stat] = MappingProxyType({}),
        save: bool = True,
    ) -> Iterator[IngestOutcome]:
        """One outcome for each source; those that look unchanged cost at most a stat. `glanced`: how they looked just now."""
        self.files.look_at_forks_anew()
        self.cache.look_at_journals()
        changed = []
        for source in sources:
            try:
                at = glanced.get(source.path) or self._host.stat(source.path)
                unchanged = self._unchanged(source, at) if at and not self.context.force else None
            except OSError as problem:
                yield self._failed(source, str(problem))
                continue
            if unchanged:
                yield unchanged
            else:
                changed.append((source, at))
        yield from self._take_all(changed, progress)
        if save:
            self.cache.save()

    def _take_all(self, changed: list[tuple[Source, Stat | None]], progress: Progress | None) -> Iterator[IngestOutcome]:
        total = sum(at.size for _, at in changed if at)
        done = 0
        for source, at in changed:

            def step(offset: int, done: int = done) -> None:
                if progress:
                    progress(min(done + offset, total), total)

            for outcome in self._isolated(source, at, step):
                self._note_pause(source, at, outcome)
                yield outcome
            done += at.size if at else 0
            step(0, done)

    def _isolated(self, source: Source, at: Stat | None, step: Callable[[int], None]) -> Iterator[IngestOutcome]:
        """One bad source is reported, and the rest go on."""
        try:
            yield from self.take(source, at, step)
        except Deleted:
            yield self._left_out(source, at, "deleted")
        except Exception as problem:  # a source is anybody's bytes: whatever they do to our code is this one's failure
            yield self._failed(source, problem_text(problem))

    # -- sources that look as they did

    def _unchanged(self, source: Source, at: Stat) -> IngestOutcome | None:
        """Of a source that looks as it did; None when it must be opened."""
        if source.form not in MANY and (same := self.cache.same(source.path, at)):
            agent, native, state = same
            return IngestOutcome(source.agent, source.path, f"{agent}:{native}" if native else "", state=state or "unchanged")
        known = self.cache.get(source.path)
        if known and source.form in MANY and self._same_rows(source, at, known):
            session = f"{known.agent}:{known.session}" if known.session else ""
            return IngestOutcome(source.agent, source.path, session, state=known.state or "unchanged")
        return self._still_paused(source, at)

    def _same_rows(self, source: Source, at: Stat, known: SourceState) -> bool:
        """A file of many sessions that looks as it did, and all of whose sessions are here."""
        if known.look != FileLook.of(at) or self._beside(source) != known.beside:
            return False
        return all(self.cache.has_journal(source.agent, journal_name(source.agent, native)) for native in known.rows or {})

    def _still_paused(self, source: Source, at: Stat) -> IngestOutcome | None:
        """Known to wait, for space or for another day, and nothing has changed: then it is not even opened."""
        pause = self.cache.paused(source.path)
        if pause and self._still_holds(pause, at):
            return IngestOutcome(source.agent, source.path, pause.session, state="paused", problem=pause.problem)
        look, session = self._paused.get(source.path, (None, ""))
        quota = self.context.quota
        why = quota.problem() if quota and look == FileLook.of(at) else ""
        return IngestOutcome(source.agent, source.path, session, state="paused", problem=why) if why else None

    def _still_holds(self, pause: SourcePause, at: Stat) -> bool:
        context = self.context
        return pause.look == FileLook.of(at) and pause.limits == str(context.limits) and pause.day in ("", context.today())

    def _note_pause(self, source: Source, at: Stat | None, outcome: IngestOutcome) -> None:
        over, self.context.over_limit = self.context.over_limit, None
        key = limited_key(source, outcome.session)
        if at and outcome.state == "paused" and source.form not in MANY:
            self._paused[source.path] = FileLook.of(at), outcome.session
        else:
            self._paused.pop(source.path, None)
        if at and outcome.state == "paused" and over:
            pause = SourcePause(outcome.session, str(over), FileLook.of(at), over.day, str(self.context.limits))
            self.cache.pause(key, pause)
        else:
            self.cache.resume(key)

    # -- sources that are gone

    def vanished(self, agents: Iterable[str], present: set[str]) -> Iterator[IngestOutcome]:
        """Sources that were there at an earlier look and are gone: said once in their journals. What we have stays."""
        for path in [path for path in self.cache.paths() if path not in present]:
            seen = self.cache.get(path)
            if seen is None or seen.agent not in agents or seen.state == "vanished" or not is_gone(self._host, path):
                continue
            source = Source(seen.agent, path, session=seen.session, role=seen.role)
            if seen.session and seen.state not in ("deleted", "excluded", "empty"):
                try:
                    self._journal_vanished(session_of(source), source)
                except (DreamkeepError, OSError) as problem:  # its journal can't be written: said at the next look
                    yield outcome_of(source, state="failed", problem=str(problem))
                    continue
            self.cache.put(path, seen._replace(look=None, state="vanished"))
            self.cache.resume(path)
            yield outcome_of(source, state="vanished")
        self.cache.save()

    def _journal_vanished(self, session: str, source: Source) -> None:
        context, key = self.context, f"src:{self.context.name_of(source)}"
        cursor = SourceCursor.parse(context.journals.writer(session).carried(key))
        if cursor and cursor.state != "vanished":
            body = {**context.describe(source), "what": "vanished", "gen": cursor.generation}
            event = context.event(Kind.SOURCE_CHANGED, body, {key: str(cursor._replace(state="vanished"))})
            context.journals.append_if(session, [event], {key: str(cursor)})

    # -- one source

    def take(self, source: Source, at: Stat | None, step: Callable[[int], None] = no_progress) -> Iterator[IngestOutcome]:
        if at is None:
            yield outcome_of(source, state="failed", problem="no such file")
        elif at.is_folder:
            yield outcome_of(source, state="failed", problem="this is a folder")
        elif why := refusal(self._host, source.path):
            yield self._failed(source, why)
        elif self.context.excluded.path(source.path):
            yield self._left_out(source, at, "excluded")
        elif source.form == ROWS:
            from dreamkeep.capture.ingest_rows import take_rows

            yield from take_rows(self.context, source, at, self._beside(source))
        elif source.form == SHARED:
            yield from take_shared(self.context, self.files, source, at)
        else:
            yield self._take_file(source, at, step)

    def _take_file(self, source: Source, at: Stat, step: Callable[[int], None]) -> IngestOutcome:
        content = self.files.open(source)
        try:
            native = source.session or discovery(source.agent).identify(source.path, content.read(1 << 16, 0))
            if not native and not content.size:
                native = self._earlier_session(source)
            if not native and content.size:
                return outcome_of(source, state="failed", problem="its beginning doesn't name a session")
            if not native:
                return self._left_out(source, at, "empty")
            outcome = self.files.ingest(source._replace(session=native), content, step)
            if isinstance(content, Unpacked) and content.is_cut and outcome.state not in ("failed", "paused", "excluded"):
                outcome = self.context.pause(outcome, self.context.limits.too_packed(content.packed))
        finally:
            content.close()
        if outcome.state == "paused" and outcome.new_events:
            self.cache.forget(source.path)  # what is known of it is not known of all of it any more
        elif outcome.state not in ("failed", "paused"):
            self._remember(source, at, native, outcome.state, self.files.summary)
        return outcome

    def _failed(self, source: Source, why: str) -> IngestOutcome:
        self.cache.forget(source.path)
        return outcome_of(source, state="failed", problem=why)

    def _left_out(self, source: Source, at: Stat | None, state: str) -> IngestOutcome:
        self._remember(source, at, "", state)
        return outcome_of(source, state=state)

    def _earlier_session(self, source: Source) -> str:
        """Which session a file was that is empty now, and so does not say it any more."""
        seen = self.cache.get(source.path)
        return seen.session if seen is not None and seen.agent == source.agent and seen.journal else ""

    def _remember(self, source: Source, at: Stat | None, native: str, state: str, summary: ReadSummary | None = None) -> None:
        # What is left out by intent may be wanted later: it is looked at each time.
        look = FileLook.of(at) if at and state not in ("deleted", "excluded", "waiting") else None
        native = native or source.session
        journal = journal_name(source.agent, native) if native and state not in ("empty", "deleted") else ""
        lasting = state if state in ("deleted", "excluded", "empty") else ""
        seen = SourceState(source.agent, native, look, self._beside(source), lasting, None, journal, source.role)
        self.cache.put(source.path, _with_summary(seen, self.cache.get(source.path), state, summary) if summary else seen)

    def _beside(self, source: Source) -> FileLook | None:
        if source.form != ROWS:
            return None
        at = self._host.stat(f"{source.path}-wal")
        return FileLook.of(at) if at else None


def _with_summary(seen: SourceState, before: SourceState | None, state: str, summary: ReadSummary) -> SourceState:
    """With what an audit may rely on without looking: only what is known of all of a source, from its beginning on."""
    if state == "new":
        return seen._replace(rewritten=False, odd=summary.odd, word=summary.cursor)
    before = before or SourceState("", "", None)
    odd = None if before.odd is None or summary.odd is None else before.odd + summary.odd
    rewritten = summary.took_away or before.rewritten
    return seen._replace(rewritten=rewritten, odd=summary.odd if summary.whole else odd, word=summary.cursor)
