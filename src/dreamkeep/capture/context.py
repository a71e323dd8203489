"""What every way of capturing a source is given: the host, the journals, the cache, and the limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from dreamkeep.agents.contract import MANY, Source
from dreamkeep.capture.exclude import Excluded
from dreamkeep.capture.quota import OverLimit, Paused, Quota, SourceLimits, size_of
from dreamkeep.capture.session_start import Openings
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import Content
from dreamkeep.capture.sources.source_cache import Cache
from dreamkeep.errors import Deleted, DreamkeepError
from dreamkeep.event import Event, Ids, rfc3339
from dreamkeep.host import Host
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.writers import JournalWriters

Answer = TypeVar("Answer")

_TRIES = 8
#: Somebody may still be writing a file that is so young.
_YOUNG_NS = 60_000_000_000

OVERTAKEN = "another process keeps writing the same; try again"


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


class CaptureContext:
    def __init__(
        self, host: Host, root: str, journals: JournalWriters, ids: Ids, *, exclude: Sequence[str] = (), force: bool = False
    ) -> None:
        self.host = host
        self.root = root
        self.journals = journals
        self._ids = ids
        self.excluded = Excluded(exclude)
        self.cache = Cache(host, root)
        self.openings = Openings(host, root, journals, ids, self.excluded)
        #: Open every source, also one that looks unchanged.
        self.force = force
        #: How large the keep may grow by this; None: without limit.
        self.quota: Quota | None = None
        self.limits = SourceLimits()
        #: Why the source at hand is over its own limit. Saved with its outcome, so that `status` shows it and the source isn't
        #: opened in vain.
        self.over_limit: OverLimit | None = None
        self._tombstones = Tombstones(host, root)

    # -- appending

    @property
    def masks(self) -> bool:
        """Whether secrets are masked in what is journaled."""
        return self.journals.mask is not None

    def event(self, kind: str, body: Any, carry: dict[str, int | str] | None = None) -> Event:
        return Event(self._ids.new(), kind, rfc3339(self.host.now()), body, carry)

    def append_if(
        self, session: str, events: Sequence[Event], expect: dict[str, int | str | None], source: Source | None = None
    ) -> None:
        """Raises Overtaken when the journal carries something else than `expect`."""
        if self.journals.append_if(session, events, expect) is None:
            raise Overtaken
        if self.quota:
            self.quota.wrote(events)
        if source and self.limits.per_day:
            self.cache.grow(limited_key(source, session), self.today(), size_of(events))

    # -- limits

    def today(self) -> str:
        return rfc3339(self.host.now())[:10]

    def pause_if_full(self, session: str, source: Source, more: int = 0) -> None:
        """Raises Paused when the keep is full or the source brings too much; for a deleted session it raises Deleted instead.
        `more`: bytes that would come at once."""
        why: Paused | None = None
        if self.quota and (problem := self.quota.problem(more)):
            why = Paused(problem)
        elif self.limits.per_day:
            day = self.today()
            why = self.limits.too_much_today(self.cache.grown(limited_key(source, session), day), more, day)
        if why and self._tombstones.has(session):
            raise Deleted("this session was deleted", where=session, next="Lift that first with `dreamkeep undelete`.")
        if why:
            raise why

    def pause(self, outcome: IngestOutcome, why: Paused) -> IngestOutcome:
        self.over_limit = why if isinstance(why, OverLimit) else None
        return outcome._replace(state="paused", problem=str(why))

    # -- what the journal has of a source, and what is said of it there

    def folder_of(self, session: str) -> str:
        return f"{self.root}/{folder_of(session)}"

    def name_of(self, source: Source) -> str:
        return source.name or source_bytes.name_of(self.host, source.role, source.path)

    def describe(self, source: Source) -> dict[str, Any]:
        path = os.path.abspath(source.path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return {"source": self.name_of(source), "role": source.role, "agent": source.agent, "form": source.form, "path": path}

    def is_young(self, content: Content) -> bool:
        """Whether somebody may be writing it just now."""
        return self.host.now() - content.mtime_ns < _YOUNG_NS


def session_of(source: Source) -> str:
    return f"{source.agent}:{source.session}" if source.session else ""


def outcome_of(source: Source, **more: Any) -> IngestOutcome:
    return IngestOutcome(source.agent, source.path, session_of(source), **more)


def limited_key(source: Source, session: str) -> str:
    """What the limits of a source count by: a file, or one session of a file that holds many."""
    return f"{source.path}#{session}" if source.form in MANY else source.path


def journal_name(agent: str, native: str) -> str:
    return os.path.basename(folder_of(f"{agent}:{native}"))


def isolate(source: Source, capture: Callable[[], IngestOutcome]) -> IngestOutcome:
    """The outcome of one session in a file of many. Its bytes are anybody's: whatever they do to our code is this session's
    failure, and no other's."""
    try:
        return capture()
    except Deleted:
        return outcome_of(source, state="deleted")
    except Exception as problem:
        return outcome_of(source, state="failed", problem=problem_text(problem))


def problem_text(problem: Exception) -> str:
    return str(problem) if isinstance(problem, (DreamkeepError, OSError)) else f"{type(problem).__name__}: {problem}"


def retry(attempt: Callable[[], Answer], otherwise: Answer) -> Answer:
    """Another process may write the same and be quicker: then everything is looked at again."""
    for _ in range(_TRIES):
        try:
            return attempt()
        except Overtaken:
            continue
    return otherwise
