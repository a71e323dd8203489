"""Transcripts already on disk → journal, from a remembered place.

Each session's journal carries, for each of its sources, how far it was read and by what the file is known again (`content.Word`).
Frames and word are one append, made only if the journal still carries the word it was based on: two ingests at once add nothing
twice, and a crash in between loses nothing. What the agent did to its file (shrank, rewrote, moved, removed it) is journaled as
that; nothing that we have is ever taken away by it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dreamkeep.agents.contract import BESIDE, DOCUMENT, LINES_ZST, MANY, ROWS, SHARED, TEXT, Source
from dreamkeep.agents.facts import Fact
from dreamkeep.agents.registry import discovery
from dreamkeep.capture.exclude import Excluded
from dreamkeep.capture.forks import Fork, Forks
from dreamkeep.capture.links import refusal
from dreamkeep.capture.quota import OverLimit, Paused, Quota, SourceLimits, size_of
from dreamkeep.capture.session_start import Openings, facts_in
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import (
    Content,
    PlainFile,
    SourceCursor,
    Unpacked,
    goes_on,
    iter_blocks,
    untouched,
    what_happened,
)
from dreamkeep.capture.sources.copying import Copying, ReadSummary
from dreamkeep.capture.sources.source_cache import Cache, FileLook, SourcePause, SourceState
from dreamkeep.errors import Deleted, DreamkeepError
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host, Stat
from dreamkeep.journal.places import folder_of, session_id
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.writers import JournalWriters

_TRIES = 8
_BELOW_ITS_PARENT = "its file lies where its parent's are"
#: A file that so far is nothing but a copy of another is left alone while it is so young: it may be a fork being made.
_UNDECIDED_NS = 60_000_000_000

Progress = Callable[[int, int], None]


class IngestOutcome(NamedTuple):
    """What one source came to. `state`: new, grew, unchanged, shrank, rewritten, replaced, moved, vanished, empty, waiting,
    deleted, excluded, paused, failed."""

    agent: str
    path: str
    session: str
    new_bytes: int = 0
    new_events: int = 0
    state: str = "unchanged"
    problem: str | None = None


class Overtaken(Exception):
    """Another ingest was quicker; look again."""


class Ingest:
    """Not for several threads at once; any number of processes."""

    def __init__(
        self, host: Host, root: str, journals: JournalWriters, ids: Ids, *, exclude: Sequence[str] = (), again: bool = False
    ) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._ids = ids
        self._excluded = Excluded(exclude)
        self._cache = Cache(host, root)
        self.again = again
        self._openings = Openings(host, root, journals, ids, self._excluded)
        self._forks = Forks(host)
        self._well = ReadSummary()
        #: How large the keep may grow by this; None: as it likes. And what waits for that, as it looked.
        self.quota: Quota | None = None
        self.limits = SourceLimits()
        #: Why the source at hand is over its own limit.
        self._over: OverLimit | None = None
        self._paused: dict[str, tuple[FileLook, str]] = {}
        self._tombstones = Tombstones(host, root)

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
        self._forks = Forks(self._host)
        self._cache.look_at_journals()
        todo = []
        for source in sources:
            try:
                at = glanced.get(source.path) or self._host.stat(source.path)
                known = self._unchanged(source, at) if at else None
            except OSError as problem:
                yield self._failed(source, str(problem))
                continue
            if known:
                yield known
            else:
                todo.append((source, at))
        yield from self._take_all(todo, progress)
        if save:
            self._cache.save()

    def _unchanged(self, source: Source, at: Stat) -> IngestOutcome | None:
        """Of a source that looks as it did; None when it must be opened."""
        if not self.again and source.form not in MANY and (same := self._cache.same(source.path, at)):
            agent, native, state = same
            return IngestOutcome(source.agent, source.path, f"{agent}:{native}" if native else "", state=state or "unchanged")
        known = self._cache.get(source.path)
        if known and source.form in MANY and not self.again and self._same_rows(source, at, known):
            session = f"{known.agent}:{known.session}" if known.session else ""
            return IngestOutcome(source.agent, source.path, session, state=known.state or "unchanged")
        return self._still_paused(source, at)

    def _same_rows(self, source: Source, at: Stat, known: SourceState) -> bool:
        """A file of many sessions that looks as it did, and all of whose sessions are here."""
        if known.look != FileLook.of(at) or self._beside(source) != known.beside:
            return False
        names = (os.path.basename(folder_of(f"{source.agent}:{native}")) for native in known.rows or {})
        return all(self._cache.has_journal(source.agent, name) for name in names)

    def _take_all(self, todo: list[tuple[Source, Stat | None]], progress: Progress | None) -> Iterator[IngestOutcome]:
        total = sum(at.size for _, at in todo if at)
        done = 0
        for source, at in todo:
            step = self._stepping(progress, done, total)
            for outcome in self._isolated(source, at, step):
                self._note_pause(source, at, outcome)
                yield outcome
            done += at.size if at else 0
            step(0)

    def _still_paused(self, source: Source, at: Stat) -> IngestOutcome | None:
        """Known to wait, for space or for another day, and nothing has changed: then it is not even opened."""
        pause = self._cache.paused(source.path)
        if pause and not self.again and self._still_holds(pause, at):
            return IngestOutcome(source.agent, source.path, pause.session, state="paused", problem=pause.problem)
        look, session = self._paused.get(source.path, (None, ""))
        why = self.quota.problem() if self.quota and look == FileLook.of(at) and not self.again else ""
        return IngestOutcome(source.agent, source.path, session, state="paused", problem=why) if why else None

    def _still_holds(self, pause: SourcePause, at: Stat) -> bool:
        return pause.look == FileLook.of(at) and pause.limits == str(self.limits) and pause.day in ("", self._today())

    def _note_pause(self, source: Source, at: Stat | None, outcome: IngestOutcome) -> None:
        over, self._over = self._over, None
        key = self._limited(source, outcome.session)
        if at and outcome.state == "paused" and source.form not in MANY:
            self._paused[source.path] = FileLook.of(at), outcome.session
        else:
            self._paused.pop(source.path, None)
        if at and outcome.state == "paused" and over:
            self._cache.pause(key, SourcePause(outcome.session, str(over), FileLook.of(at), over.day, str(self.limits)))
        else:
            self._cache.resume(key)

    def _limited(self, source: Source, session: str) -> str:
        """What the limits of a source count by: a file, or one session of a file that holds many."""
        return f"{source.path}#{session}" if source.form in MANY else source.path

    def _today(self) -> str:
        return rfc3339(self._host.now())[:10]

    @staticmethod
    def _stepping(progress: Progress | None, done: int, total: int) -> Callable[[int], None]:
        def step(offset: int) -> None:
            if progress:
                progress(min(done + offset, total), total)

        return step

    def _isolated(self, source: Source, at: Stat | None, step: Callable[[int], None]) -> Iterator[IngestOutcome]:
        """One bad source is reported, and the rest go on."""
        try:
            try:
                yield from self.take(source, at, step)
            except Deleted:
                self._remember(source, at, "", "deleted")
                yield IngestOutcome(source.agent, source.path, self._named(source), state="deleted")
        except (DreamkeepError, OSError) as problem:
            yield self._failed(source, str(problem))
        except Exception as problem:  # a source is anybody's bytes: whatever they do to our code is this one's failure
            yield self._failed(source, f"{type(problem).__name__}: {problem}")

    def _failed(self, source: Source, why: str) -> IngestOutcome:
        self._cache.forget(source.path)
        return IngestOutcome(source.agent, source.path, self._named(source), state="failed", problem=why)

    def vanished(self, agents: Iterable[str], present: set[str]) -> Iterator[IngestOutcome]:
        """Sources that were there at an earlier look and are gone: said once in their journals. What we have stays."""
        for path in [path for path in self._cache.paths() if path not in present]:
            seen = self._cache.get(path)
            if seen is None or seen.agent not in agents or seen.state == "vanished" or not self._is_gone(path):
                continue
            source = Source(seen.agent, path, session=seen.session, role=seen.role)
            if seen.session and seen.state not in ("deleted", "excluded", "empty"):
                try:
                    self._say_changed(f"{seen.agent}:{seen.session}", source, "vanished")
                except (DreamkeepError, OSError) as problem:  # its journal can't be written: said at the next look
                    yield IngestOutcome(seen.agent, path, self._named(source), state="failed", problem=str(problem))
                    continue
            self._cache.put(path, seen._replace(look=None, state="vanished"))
            self._cache.resume(path)
            yield IngestOutcome(seen.agent, path, f"{seen.agent}:{seen.session}" if seen.session else "", state="vanished")
        self._cache.save()

    def _is_gone(self, path: str) -> bool:
        try:
            return self._host.stat(path) is None
        except OSError:
            return False  # can't be looked at: that is not gone

    # -- one

    def take(self, source: Source, at: Stat | None, step: Callable[[int], None] = lambda offset: None) -> Iterator[IngestOutcome]:
        if at is None:
            yield IngestOutcome(source.agent, source.path, self._named(source), state="failed", problem="no such file")
        elif at.is_folder:
            yield IngestOutcome(source.agent, source.path, self._named(source), state="failed", problem="this is a folder")
        elif why := refusal(self._host, source.path):
            yield self._failed(source, why)
        elif self._excluded.path(source.path):
            self._remember(source, at, "", "excluded")
            yield IngestOutcome(source.agent, source.path, self._named(source), state="excluded")
        elif source.form == ROWS:
            from dreamkeep.capture.ingest_rows import take_rows

            yield from take_rows(self, source, at, self._beside(source))
        elif source.form == SHARED:
            from dreamkeep.capture.ingest_shared import take_shared

            yield from take_shared(self, source, at)
        else:
            yield self._take_file(source, at, step)

    def _take_file(self, source: Source, at: Stat, step: Callable[[int], None]) -> IngestOutcome:
        content = self._opened_content(source)
        try:
            native = source.session or discovery(source.agent).identify(source.path, content.read(1 << 16, 0))
            if not native and not content.size:
                native = self._was(source)
            if not native:
                if content.size:
                    return IngestOutcome(
                        source.agent, source.path, "", state="failed", problem="its beginning doesn't name a session"
                    )
                self._remember(source, at, "", "empty")
                return IngestOutcome(source.agent, source.path, "", state="empty")
            self._well = ReadSummary()
            outcome = self.take_whole(source._replace(session=native), content, step)
            if isinstance(content, Unpacked) and content.is_cut and outcome.state not in ("failed", "paused", "excluded"):
                self._over = self.limits.too_packed(content.packed)
                outcome = outcome._replace(state="paused", problem=str(self._over))
        finally:
            content.close()
        if outcome.state == "paused" and outcome.new_events:
            self._cache.forget(source.path)  # what is known of it is not known of all of it any more
        elif outcome.state not in ("failed", "paused"):
            self._remember(source, at, native, outcome.state, self._well)
        return outcome

    def _opened_content(self, source: Source) -> Content:
        if source.form != LINES_ZST:
            return PlainFile(self._host, source.path)
        # Never less than was captured of its session: it would look as if the file had shrunk.
        known = self._journals.writer(session_id(source.agent, source.session)).all_carried() if source.session else {}
        words = (SourceCursor.parse(value) for key, value in known.items() if key.startswith("src:"))
        least = max((word.offset for word in words if word), default=0)

        def most(packed: int) -> int | None:
            ceiling = self.limits.most_unpacked(packed)
            return None if ceiling is None else max(ceiling, least)

        return Unpacked(self._host, source.path, most)

    def take_whole(self, source: Source, content: Content, step: Callable[[int], None] = lambda offset: None) -> IngestOutcome:
        """What is new of one source of one session."""
        session = session_id(source.agent, source.session)
        done = IngestOutcome(source.agent, source.path, session)
        if source.role in BESIDE and self._host.stat(f"{self._root}/{folder_of(session)}") is None:
            return done._replace(state="waiting")  # its session is not here, and may never be meant to be
        for _ in range(_TRIES):
            try:
                return self._take_content(source, session, content, step)
            except Overtaken:
                continue
        return done._replace(state="failed", problem="another process keeps writing the same; try again")

    def take_again(self, source: Source, content: Content) -> None:
        """What the journal lost of a source, from its file: a new generation, in which lines that can still be read are named.
        One of which nothing is left, and that never had another generation, is read as if it were new."""
        session, name = session_id(source.agent, source.session), self.name_of(source)
        text = self._journals.writer(session).carried(f"src:{name}")
        word = SourceCursor.parse(text)
        if word is None:
            raise Overtaken
        if word.generation == 1 and not self.old_lines(session, name):
            word, opened = self._opened(source, content)
            run = Copying(self, source, session, name, content, word, text, [opened])
            run.document("new") if source.form == DOCUMENT else run.grown(lambda offset: None)
            run.flush()
            return
        run = Copying(self, source, session, name, content, word, text, ())
        if source.form == DOCUMENT:
            run.document_again("mended")
        else:
            run.rewritten("mended", lambda offset: None)
        run.flush()

    def begin_again(self, session: str, facts: Iterable[Fact]) -> None:
        """How a session began, for a journal that lost it and still carries it. `facts`: of its transcript."""
        parent = self._journals.writer(session).carried("lineage:subagent")
        edges = [self._edge("subagent", str(parent), _BELOW_ITS_PARENT)._replace(carry=None)] if parent else []
        self._journals.append(session, [*self._openings.repeat_opening(session, facts), *edges])

    def tell_again(self, source: Source) -> None:
        """What a source is, for a journal that lost it and still carries how far it was read."""
        session, key = session_id(source.agent, source.session), f"src:{self.name_of(source)}"
        text = self._journals.writer(session).carried(key)
        word = SourceCursor.parse(text)
        if word is None:
            raise Overtaken
        event = self.event(Kind.SOURCE_OPENED, {**self.about(source), "gen": word.generation})
        self.append_if(session, [event], {key: text})

    def _take_content(self, source: Source, session: str, content: Content, step: Callable[[int], None]) -> IngestOutcome:
        name = self.name_of(source)
        text = self._journals.writer(session).carried(f"src:{name}")
        word = SourceCursor.parse(text)
        done = IngestOutcome(source.agent, source.path, session, state="grew")
        if word is None and _is_blank(content):
            return done._replace(state="empty")
        opening = self._openings.of(session, lambda: facts_in(source, content) if source.form != TEXT else (), source.path)
        if opening is None:
            return done._replace(state="excluded")
        copied = 0
        if word is None:
            word, state, event = self._first_word(source, session, content)
            fork = self._forks.find(source, content) if not word.offset else None
            if fork and fork.undecided and self._host.now() - content.mtime_ns < _UNDECIDED_NS:
                return done._replace(state="waiting")
            copied = fork.size if fork else 0
            opening = [*opening, *self._lineage(source, fork), event]
            done = done._replace(state=state)
        run = Copying(self, source, session, name, content, word, text, opening)
        try:
            state = self._read(run, done.state, copied, step)
            if state == "waiting" or (self.masks and text is None and not run.word.offset):
                return done._replace(state="waiting")  # nothing but a line that is still being written
            run.flush()
        except Paused as why:
            self.note_limit(why)
            return done._replace(new_bytes=run.kept_bytes, new_events=run.new_events, state="paused", problem=str(why))
        self._well = run.well._replace(word=str(run.word))
        return done._replace(new_bytes=run.new_bytes, new_events=run.new_events, state=state)

    def _read(self, run: Copying, state: str, copied: int, step: Callable[[int], None]) -> str:
        source, content, word = run.source, run.content, run.word
        if source.form == DOCUMENT:
            state = run.document(state)
            if state == "waiting":
                return state
        elif word.offset and not goes_on(content, word):
            state = what_happened(content, word)
            run.rewritten(state, step)
        elif content.size > word.offset:
            run.grown(step, copied)
            if state == "grew" and not run.new_bytes:
                return "unchanged"  # only a line that is still being written
        elif not untouched(content, word):
            state = "rewritten"
            run.rewritten(state, step)
        else:
            return state if state == "moved" else "unchanged"
        if state != "unchanged" and source.role not in BESIDE:
            run.pause_if_full()
            start = word.offset if state == "grew" else 0
            self._openings.resume_if(run.session, lambda: facts_in(source, content, start))
        return state

    def _first_word(self, source: Source, session: str, content: Content) -> tuple[SourceCursor, str, Event]:
        """Where reading begins: at zero; or, if the file was only moved (archived, compressed), where it was."""
        name = self.name_of(source)
        carried = self._journals.writer(session).all_carried()
        # A moved transcript may have another role (set aside as unreadable); what lies beside it is many, and written once.
        alike = f"src:{source.role}-" if source.role in BESIDE else "src:"
        for key, value in carried.items():
            known = SourceCursor.parse(value) if key.startswith(alike) else None
            if known and source.role in BESIDE and known.offset != content.size:
                continue
            if known and known.offset and key != f"src:{name}" and goes_on(content, known) and self._left(session, key[4:]):
                moved = known._replace(inode=content.inode, state="")
                body = {**self.about(source), "what": "moved", "was": key[4:], "gen": known.generation}
                # The old name has no word any more: a file that comes back there has moved once more.
                return moved, "moved", self.event(Kind.SOURCE_CHANGED, body, {f"src:{name}": str(moved), key: "moved"})
        word, opened = self._opened(source, content)
        return word, "new", opened

    def _opened(self, source: Source, content: Content) -> tuple[SourceCursor, Event]:
        word = SourceCursor(1, 0, 0, content.inode, 0, "-", "-")
        carry: dict[str, int | str] = {f"src:{self.name_of(source)}": str(word)}
        return word, self.event(Kind.SOURCE_OPENED, {**self.about(source), "gen": 1}, carry)

    def _left(self, session: str, name: str) -> bool:
        """Whether nothing is any more where that source was."""
        path = source_bytes.sources(self._host, f"{self._root}/{folder_of(session)}").get(name, {}).get("path", "")
        # A path that was no UTF-8 can't be asked for by what the journal has of it.
        if not path or "\ufffd" in path or not self._is_gone(path):
            return False
        self._cache.forget(path)
        return True

    # -- what the parts of an ingest share

    def event(self, kind: str, body: Any, carry: dict[str, int | str] | None = None) -> Event:
        return Event(self._ids.new(), kind, rfc3339(self._host.now()), body, carry)

    def append_if(
        self, session: str, events: Sequence[Event], expect: dict[str, int | str | None], source: Source | None = None
    ) -> None:
        if self._journals.append_if(session, events, expect) is None:
            raise Overtaken
        if self.quota:
            self.quota.wrote(events)
        if source and self.limits.per_day:
            self._cache.grow(self._limited(source, session), self._today(), size_of(events))

    def pause_if_full(self, session: str, source: Source, more: int = 0) -> None:
        """Raises Paused when the keep is larger than it may be, or the source brings too much; Deleted, when that is why nothing
        more is read. `more`: bytes that would come at once."""
        why = self._why_paused(session, source, more)
        if why and self._tombstones.has(session):
            raise Deleted("this session was deleted", where=session, next="Lift that first with `dreamkeep undelete`.")
        if why:
            raise why

    def _why_paused(self, session: str, source: Source, more: int) -> Paused | None:
        if self.quota and (why := self.quota.problem(more)):
            return Paused(why)
        if not self.limits.per_day:
            return None
        day = self._today()
        return self.limits.too_much_today(self._cache.grown(self._limited(source, session), day), more, day)

    def note_limit(self, why: Paused) -> None:
        """Remembered with the outcome, so that `status` tells it and the source is not opened for nothing."""
        self._over = why if isinstance(why, OverLimit) else None

    def old_lines(self, session: str, name: str) -> list[bytes]:
        return source_bytes.lines(self._host, f"{self._root}/{folder_of(session)}", name)

    def before(self, session: str, name: str, generation: int) -> source_bytes.Before:
        return source_bytes.before(self._host, f"{self._root}/{folder_of(session)}", name, generation)

    def name_of(self, source: Source) -> str:
        return source.name or source_bytes.name_of(self._host, source.role, source.path)

    def about(self, source: Source) -> dict[str, Any]:
        path = os.path.abspath(source.path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return {"source": self.name_of(source), "role": source.role, "agent": source.agent, "form": source.form, "path": path}

    def _lineage(self, source: Source, fork: Fork | None) -> list[Event]:
        found = []
        if source.parent:
            found.append(self._edge("subagent", f"{source.agent}:{source.parent}", _BELOW_ITS_PARENT))
        if fork and fork.session:
            found.append(self._edge("fork", fork.session, fork.evidence))
        return found

    def _edge(self, kind: str, other: str, evidence: str) -> Event:
        body = {"kind": kind, "session": other, "evidence": evidence}
        return self.event(Kind.LINEAGE_FOUND, body, {f"lineage:{kind}": other})

    @property
    def host(self) -> Host:
        return self._host

    @property
    def masks(self) -> bool:
        return self._journals.mask is not None

    def is_young(self, content: Content) -> bool:
        """Whether somebody may be writing it just now."""
        return self._host.now() - content.mtime_ns < _UNDECIDED_NS

    @property
    def root(self) -> str:
        return self._root

    @property
    def journals(self) -> JournalWriters:
        return self._journals

    @property
    def openings(self) -> Openings:
        return self._openings

    @property
    def cache(self) -> Cache:
        return self._cache

    def _say_changed(self, session: str, source: Source, what: str) -> None:
        name = self.name_of(source)
        word = SourceCursor.parse(self._journals.writer(session).carried(f"src:{name}"))
        if word and word.state != what:
            event = self.event(
                Kind.SOURCE_CHANGED,
                {**self.about(source), "what": what, "gen": word.generation},
                {f"src:{name}": str(word._replace(state=what))},
            )
            self._journals.append_if(session, [event], {f"src:{name}": str(word)})

    def _was(self, source: Source) -> str:
        """Which session a file was that is empty now, and so does not say it any more."""
        seen = self._cache.get(source.path)
        return seen.session if seen is not None and seen.agent == source.agent and seen.journal else ""

    def _remember(self, source: Source, at: Stat | None, native: str, state: str, well: ReadSummary | None = None) -> None:
        # What is left out by intent may be wanted later: it is looked at each time.
        look = FileLook.of(at) if at and state not in ("deleted", "excluded", "waiting") else None
        native = native or source.session
        journal = os.path.basename(folder_of(f"{source.agent}:{native}")) if native and state not in ("empty", "deleted") else ""
        seen = SourceState(source.agent, native, look, self._beside(source), _lasting(state), None, journal, source.role)
        self._cache.put(source.path, _known_well(seen, self._cache.get(source.path), state, well))

    def _beside(self, source: Source) -> FileLook | None:
        if source.form != ROWS:
            return None
        at = self._host.stat(f"{source.path}-wal")
        return FileLook.of(at) if at else None

    @staticmethod
    def _named(source: Source) -> str:
        return f"{source.agent}:{source.session}" if source.session else ""


def _known_well(seen: SourceState, before: SourceState | None, state: str, well: ReadSummary | None) -> SourceState:
    """With what an audit may rely on without looking: only what is known of all of a source, from its beginning on."""
    if well is None:
        return seen
    if state == "new":
        return seen._replace(rewritten=False, odd=well.odd, word=well.word)
    known = before or SourceState("", "", None)
    odd = None if known.odd is None or well.odd is None else known.odd + well.odd
    return seen._replace(rewritten=well.took_away or known.rewritten, odd=well.odd if well.whole else odd, word=well.word)


def _lasting(state: str) -> str:
    return state if state in ("deleted", "excluded", "empty") else ""


def _is_blank(content: Content) -> bool:
    """Nothing but blanks and line feeds."""
    return not any(block.strip() for block in iter_blocks(content))
