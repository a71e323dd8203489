"""Reads one session with a model (reading.py makes the requests) and turns the results into insights.

The caller (read_session.py) gives them to the run, which journals them and concludes notes. A later run repeats what fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.clean import clean_session
from dreamkeep.dream.backends.model.items import UnreadableAnswer
from dreamkeep.dream.backends.model.merging import NearFiles, links, make_cases, merge_requests
from dreamkeep.dream.backends.model.reading import (
    ACTIVE,
    MOST_SHARED,
    Judged,
    ModelReply,
    ReadBatch,
    ReadingProgress,
    SessionText,
    advance,
    make_batches,
    seq_of,
)
from dreamkeep.errors import NoAnswer, Unanswered
from dreamkeep.memory.insight import ACTIVE_SHELF, AGENT, INBOX, SUGGESTED, TYPED, USER, Insight, Quote, insight_id
from dreamkeep.session.reading.digest import place_of

if TYPE_CHECKING:
    from dreamkeep.dream.backends.model.requests import Request
    from dreamkeep.memory.memory import Memory
    from dreamkeep.session.messages import Message
    from dreamkeep.session.summary import Summary

#: The confidence of an insight, by its shelf.
_CONFIDENCE = {ACTIVE_SHELF: 0.9, INBOX: 0.5}
_WHY_FOR_ALL = "it sounds like a wish for all projects"


class Asks(Protocol):
    """Answers requests: a model, or an exchange folder. May raise NoAnswer or OverBudget. `shares`: small sessions may share a
    request."""

    shares: bool

    @property
    def spent(self) -> Usage: ...

    @property
    def secrets(self) -> tuple[str, ...]: ...

    def ask(self, request: Request) -> ModelReply: ...

    def unreadable(self, request: Request, why: str) -> NoAnswer:
        """Reports that the answer to a request can't be used. Returns the error to raise."""


class Piece(NamedTuple):
    """The result of one batch of a session: the seqs that it showed, what was found there, or why nothing was."""

    seqs: tuple[int, ...]
    judged: tuple[Judged, ...] = ()
    dropped: Mapping[str, int] = {}
    problem: Exception | None = None


def session_text(
    summary: Summary,
    messages: Sequence[Message],
    title: str,
    *,
    read: Iterable[tuple[int, int]],
    finished: int,
    tasks: Sequence[tuple[str, str]],
    secrets: Iterable[str],
) -> SessionText:
    """The session without secrets. `read`: ranges that were read before. What comes after `finished` is left for the next run."""
    shown = [one for one in messages if one.seq <= finished]
    clean, (title, *titles) = clean_session(shown, (title, *(named for _, named in tasks)), secrets)
    tasks = tuple((id, named) for (id, _), named in zip(tasks, titles, strict=True))
    return SessionText(summary.id, summary.agent, summary.project, title, summary.cwd, tuple(clean), tuple(read), tasks)


class ModelReader:
    """Reads sessions one after the other. A small session shares its request with small ones that follow."""

    def __init__(self, model: Asks, part_tokens: int) -> None:
        self.model = model
        self._part_tokens = part_tokens
        #: Results of sessions that shared an earlier request, until it is their turn.
        self._read_ahead: dict[str, Piece] = {}

    def read(self, text: SessionText, following: Callable[[], Sequence[SessionText]]) -> Iterator[Piece]:
        """Asks about each piece when it is iterated. `following`: loads the next sessions; used if this one is small."""
        if text.id in self._read_ahead:
            yield self._read_ahead.pop(text.id)
            return
        batches = make_batches([text], part_tokens=self._part_tokens)
        if len(batches) == 1 and self.model.shares:
            batches = self._share_batch(text, batches[0], following)
        for batch in batches:
            yield self._ask_about(batch, text)

    def _share_batch(self, text: SessionText, own: ReadBatch, following: Callable[[], Sequence[SessionText]]) -> list[ReadBatch]:
        """The request that this session shares with those that follow, if there are any."""
        others = [one for one in following()[: MOST_SHARED - 1] if one.project == text.project]
        shared = [one for one in make_batches([text, *others]) if text.id in one.sessions]
        return shared if len(shared) == 1 and len(shared[0].sessions) > 1 else [own]

    def _ask_about(self, batch: ReadBatch, text: SessionText) -> Piece:
        try:
            done = self._ask_until_done(batch)
        except Exception as problem:  # a backend may raise anything; a later run repeats this piece, the others go on
            return Piece(_list_seqs(batch, text.id), problem=problem)
        for session in batch.sessions - {text.id}:
            of_it = tuple(one for one in done.judged if one.item.session == session)
            self._read_ahead[session] = Piece(_list_seqs(batch, session), of_it)
        mine = tuple(one for one in done.judged if one.item.session == text.id)
        return Piece(_list_seqs(batch, text.id), mine, done.dropped)

    def _ask_until_done(self, batch: ReadBatch) -> ReadingProgress:
        answers: dict[str, ModelReply] = {}
        while True:
            progress = advance(batch, answers)
            if not progress.needed:
                return progress
            problems = [self.model.unreadable(one, progress.unreadable[one.id]) for one in progress.needed if one.id in answers]
            if problems:
                raise problems[0]
            answers |= self._ask_all(progress.needed)

    def _ask_all(self, requests: Sequence[Request]) -> dict[str, ModelReply]:
        """Makes all requests before it raises Unanswered for one of them, so that an exchange learns of all."""
        found: dict[str, ModelReply] = {}
        later: Unanswered | None = None
        for request in requests:
            try:
                found[request.id] = self.model.ask(request)
            except Unanswered as problem:
                later = problem
        if later is not None:
            raise later
        return found

    def merge(self, memory: Memory, insights: Sequence[Insight], near_files: NearFiles) -> list[tuple[str, dict[str, Any]]]:
        """Events that link new insights with what is remembered. An answer that can't be read links nothing."""
        found: list[tuple[str, dict[str, Any]]] = []
        later: Unanswered | None = None
        asked = merge_requests(make_cases(memory, insights, near_files))
        answers = self._ask_all([request for request, _ in asked])
        for request, cases in asked:
            try:
                found += links(answers[request.id], cases)
            except UnreadableAnswer as problem:
                error = self.model.unreadable(request, str(problem))
                later = error if isinstance(error, Unanswered) else later
        if later is not None:
            raise later
        return found


def _list_seqs(batch: ReadBatch, session: str) -> tuple[int, ...]:
    lines = [line for own in batch.materials.values() if own.session == session for line in own.lines]
    return tuple(sorted({seq_of(line.seq) for line in lines}))


def as_insights(judged: Judged, text: SessionText, run: str) -> list[Insight]:
    """An insight for the project. If it sounds like a wish of the person, also a suggestion for all projects."""
    own = as_insight(judged, text, run)
    if judged.item.scope != "person" or not text.project or own.shelf == INBOX:
        return [own]
    id = insight_id(text.id, own.type, f"{judged.item.quotes[0].words}\0{own.text}\0person")
    wider = own._replace(id=id, project="", confidence=_CONFIDENCE[INBOX], shelf=INBOX, why=_WHY_FOR_ALL)
    return [own, wider]


def as_insight(judged: Judged, text: SessionText, run: str) -> Insight:
    item = judged.item
    messages = {place_of(one): one for one in text.messages}
    quotes = tuple(
        Quote(text.id, one.place, messages[one.place].turn, one.words, one.author, TYPED if one.author == AGENT else one.origin)
        for one in item.quotes
    )
    shelf = ACTIVE_SHELF if judged.shelf == ACTIVE else INBOX
    return Insight(
        insight_id(text.id, item.kind, f"{item.quotes[0].words}\0{item.note}"),
        item.kind,
        item.note,
        text.project,
        quotes,
        messages[item.quotes[0].place].at,
        _CONFIDENCE[shelf],
        SUGGESTED,
        USER if item.typed else AGENT,
        "dream",
        item.task,
        run,
        shelf,
        why=judged.why if shelf == INBOX else "",
    )
