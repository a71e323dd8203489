"""One session of a run is read: by a backend that proposes insights, or by a model that answers requests.

Neither way journals anything. Both give a `SessionReading`; the run (session_run.py) decides what follows from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dreamkeep.dream import queries
from dreamkeep.dream.backends.api import Answer, Given, TaskGiven, TurnGiven, Usage, spent_before
from dreamkeep.dream.backends.checks import KnownInsights, checked, proposed
from dreamkeep.dream.backends.model.reading import MOST_SHARED, Judged, SessionText
from dreamkeep.dream.backends.model.session import ModelReader, as_insights, session_text
from dreamkeep.dream.deletions import Deletions
from dreamkeep.dream.parts import Ask, Parts
from dreamkeep.errors import NoAnswer, OverBudget, Unanswered
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host
from dreamkeep.index.heard_before import find_heard
from dreamkeep.memory.dreams import DreamProgress
from dreamkeep.memory.insight import INBOX, USER, Insight, task_id
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.task import OPEN, Task
from dreamkeep.session.reading.digest import find_unheard
from dreamkeep.session.reading.origin import LONGEST_LINE, SHORTEST_LINE

if TYPE_CHECKING:
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary

T = TypeVar("T")
#: The last word of a text that was cut, where it could be a part of a key.
_CUT = re.compile(r"[\w+/=.:~-]+…$", re.ASCII)
_TASKS_GIVEN = 8
_INSIGHTS_GIVEN = 20


class SessionReading(NamedTuple):
    """What reading a session gave. `upto`, `also`: how far it is read for good, and which stretches behind that are read, too.
    `is_waiting`: the answers come later, so nothing of this counts yet."""

    opened: list[Event]
    insights: list[Insight]
    usage: Usage
    dropped: Counter[str]
    failure: str
    upto: int
    also: list[list[int]]
    is_waiting: bool = False


class RunState:
    """What a run knows while it goes on. The run and those who read its sessions share it."""

    def __init__(self, host: Host, ids: Ids, ask: Ask[Any], glance: Ask[Any], parts: Parts, deletions: Deletions | None) -> None:
        self.host = host
        self.ids = ids
        self.ask = ask
        self.glance = glance
        self.parts = parts
        self.deletions = deletions
        self.id = ids.new()
        self.memory = Memory()
        #: Why nothing more may be asked in this run.
        self.stop_reason = ""
        #: The same, if the reason is that nobody answers.
        self.unanswered = ""

    def now(self) -> str:
        return rfc3339(self.host.now())

    def event(self, _kind: str, /, **body: Any) -> Event:
        return Event(self.ids.new(), _kind, self.now(), {"run": self.id, **body})

    def is_deleted(self, session: str) -> bool:
        return self.deletions is not None and self.deletions.has(session)

    def redact_reason(self, why: str) -> str:
        """A backend's words may hold anything: a key that was refused, a piece of the session. Redacted before it is cut."""
        return self.parts.redact(why[:20_000])[:1000]

    def describe_failure(self, part: str, problem: Exception) -> str:
        return self.redact_reason(f"{part}: {type(problem).__name__}: {problem}")

    def must_stop(self, problem: Exception) -> bool:
        """Whether nothing more may be asked in this run, or nobody is there to be asked."""
        if isinstance(problem, NoAnswer) and problem.nobody:
            self.unanswered = self.stop_reason = self.redact_reason(str(problem))
        elif isinstance(problem, OverBudget) and not problem.never:
            self.stop_reason = self.redact_reason(str(problem))
        return bool(self.stop_reason)

    def load(self, query: Callable[[Store, DreamProgress], T | None], one: DreamProgress) -> T | None:
        """The session was indexed when it was chosen. Only if it isn't whole any more, the index is brought up to date."""
        found: T | None = None
        if not self.is_deleted(one.session):
            found = self.glance(lambda store: query(store, one) if queries.is_whole(store, one) else None)
        return found or self.ask(lambda store: query(store, one))

    def title(self, summary: Summary) -> str:
        """Half a secret looks like none: what is cut is cut after it was redacted, and a word that was cut before is left out."""
        whole = _CUT.sub("…", " ".join(summary.title.split()))
        return self.parts.redact(whole)[:120] or summary.id

    def open_tasks(self, project: str, but: str, before: str = "") -> list[Task]:
        """`before`: only those that were there by then. What a dream opens meanwhile must not change what is asked."""
        tasks = (one for one in self.memory.tasks_of_project(project) if one.state == OPEN and one.id != but)
        tasks = (one for one in tasks if not before or (one.opened_at or "") <= before)
        return nlargest(_TASKS_GIVEN, tasks, key=lambda one: one.opened_at or "")

    def drop_known_to_files(self, insights: Sequence[Insight], folder: str, dropped: Counter[str]) -> list[Insight]:
        """Without what the user's own files say already. What contradicts one of them waits for the user."""
        statements = self.parts.known(folder) if insights else ()
        if not statements:
            return list(insights)
        from dreamkeep.dream.consolidate.known_files import contradicts_file, find_contradiction, find_known

        found: list[Insight] = []
        for one in insights:
            if statement := find_known(one.text, statements):
                dropped[f"known from {statement.place.rpartition(':')[0]}"] += 1
                continue
            # What a model wrote is compared by a model, when it is merged.
            against = None if one.by_model else find_contradiction(one.text, statements)
            found.append(one._replace(shelf=INBOX, why=contradicts_file(against[0])) if against else one)
        return found


class BackendReading:
    """A backend is given a session in chunks and proposes insights."""

    def __init__(self, state: RunState, chunk_tokens: int) -> None:
        self._state = state
        self._chunk_tokens = state.parts.chunk_tokens or chunk_tokens

    def read(self, one: DreamProgress, following: Sequence[DreamProgress]) -> SessionReading | None:
        """None where the session is gone."""
        found = self._state.load(queries.load_turns, one)
        if found is None:
            return None
        summary, turns = found
        parts, memory = self._state.parts, self._state.memory
        opened, task = self._open_task(summary, turns)
        known = KnownInsights(said for said in memory.insights_of_session(one.session) if not said.waits)
        insights: list[Insight] = []
        usage, dropped, failure, read = Usage(), Counter[str](), "", set[int]()
        chunks = parts.chunks(turns, self._chunk_tokens) if turns else []
        for n, chunk in enumerate(chunks, 1):
            given = self._make_given(summary, chunk, (n, len(chunks)), task)
            try:
                answer = parts.backend.backfill(given)
                if isinstance(answer, Answer):
                    usage = usage.plus(answer.usage)
                    dropped.update(answer.dropped)
                proposals = proposed(answer)
            except Exception as problem:  # this chunk is tried again later; the others go on
                usage = usage.plus(spent_before(problem))
                if self._state.must_stop(problem):
                    break
                failure = failure or self._state.describe_failure(f"chunk {n} of {len(chunks)}", problem)
                continue
            made = checked(proposals, given, known, run=self._state.id, redact=parts.redact, trusted=parts.trusted)
            insights += made.insights
            dropped += made.dropped
            read.add(n)
        insights = self._drop_pasted(insights, turns, dropped)
        insights = self._state.drop_known_to_files(insights, summary.cwd, dropped)
        return SessionReading(
            opened, insights, usage, dropped, failure, *_find_reach([_seqs(chunk) for chunk in chunks], read, one.read)
        )

    def _drop_pasted(self, insights: list[Insight], turns: Iterable[TurnGiven], dropped: Counter[str]) -> list[Insight]:
        """Without what an agent wrote first in another session, so that the user only pasted it here."""
        if not insights:
            return []
        texts = {said.seq: said.text for turn in turns for said in turn.messages if said.role == "user"}
        lines = {one.id: _find_line(one, texts) for one in insights}
        heard = self._state.glance(lambda store: find_heard(store, set(filter(None, lines.values()))))
        found = [one for one in insights if lines[one.id] not in heard]
        if len(found) < len(insights):
            dropped["an agent's words from another session"] += len(insights) - len(found)
        return found

    def _open_task(self, summary: Summary, turns: Sequence[TurnGiven]) -> tuple[list[Event], TaskGiven]:
        """The session's own task, named by its title or first prompt. None is opened where nobody asked for anything, as in a
        subagent's session: what that was for is its parent's task."""
        id = task_id(summary.id)
        known = self._state.memory.tasks.get(id)
        title = known.title if known else self._state.title(summary)
        opened: list[Event] = []
        if turns and not known:
            opened = [self._state.event(Kind.TASK_OPENED, id=id, title=title, project=summary.project, session=summary.id)]
        return opened, TaskGiven(id, title, self._insights_of(id))

    def _make_given(self, summary: Summary, turns: Sequence[TurnGiven], chunk: tuple[int, int], task: TaskGiven) -> Given:
        others = self._state.open_tasks(summary.project, task.id)
        tasks = (task, *(TaskGiven(one.id, one.title, self._insights_of(one.id)) for one in others))
        title = self._state.title(summary)
        return Given(summary.id, summary.agent, summary.project, summary.cwd, title, tasks, tuple(turns), chunk)

    def _insights_of(self, task: str) -> tuple[tuple[str, str], ...]:
        known = [one for one in self._state.memory.insights_of_task(task) if not one.waits]
        return tuple((one.type, one.text) for one in known[-_INSIGHTS_GIVEN:])


class ModelReading:
    """A model is asked about a session. Small sessions that follow may share the request."""

    def __init__(self, state: RunState, reader: ModelReader) -> None:
        self._state = state
        self._reader = reader

    def read(self, one: DreamProgress, following: Sequence[DreamProgress]) -> SessionReading | None:
        """None where the session is gone."""
        text = self._load_text(one)
        if text is None:
            return None
        before, known = self._reader.model.spent, KnownInsights(self._state.memory.insights_of_session(one.session))
        insights: list[Insight] = []
        dropped, failure, read, shown, is_waiting = Counter[str](), "", set[int](), list[tuple[int, ...]](), False

        def load_following() -> list[SessionText]:
            # A session that failed before is asked about by itself: it may be what spoils a shared request.
            return [] if one.attempts else self._load_untried(following)

        for n, piece in enumerate(self._reader.read(text, load_following), 1):
            shown.append(piece.seqs)
            if piece.problem is None:
                read.add(n)
                dropped.update(piece.dropped)
                insights += self._select_new(piece.judged, text, known, dropped)
            elif isinstance(piece.problem, Unanswered):
                is_waiting = True
            else:
                if before == Usage() and not read and not failure:
                    _mark_too_large(piece.problem)
                if self._state.must_stop(piece.problem):
                    break
                failure = failure or self._state.describe_failure(f"part {n}", piece.problem)
        if is_waiting:  # the whole session is read once the rest is answered, too
            return SessionReading([], [], Usage(), Counter(), "", one.read, [], is_waiting=True)
        usage = self._reader.model.spent.minus(before)
        insights = self._state.drop_known_to_files(insights, text.cwd, dropped)
        upto, also = (one.finished, []) if len(read) == len(shown) else _find_reach(shown, read, one.read)
        return SessionReading(self._open_task(text), insights, usage, +dropped, failure, upto, also)

    def _select_new(
        self, judged: Iterable[Judged], text: SessionText, known: KnownInsights, dropped: Counter[str]
    ) -> list[Insight]:
        """Insights that are not known yet. Adds them to `known`, and counts the others in `dropped`."""
        new: list[Insight] = []
        for found in (as_insights(one, text, self._state.id) for one in judged):
            if known.has(found[0]):
                dropped["duplicate"] += 1
            else:
                new += found
            known.add(found[0])
        return new

    def _load_text(self, one: DreamProgress) -> SessionText | None:
        found = self._state.load(queries.load_messages, one)
        if found is None:
            return None
        summary, messages = found
        task = task_id(summary.id)
        known = self._state.memory.tasks.get(task)
        title = known.title if known else self._state.title(summary)
        others = self._state.open_tasks(summary.project, task, one.completion_at or "")
        text = session_text(
            summary,
            messages,
            title,
            read=((0, one.read), *one.also),
            finished=one.finished,
            tasks=((task, title), *((each.id, each.title) for each in others)),
            secrets=self._reader.model.secrets,
        )
        lines = find_unheard(text.messages)
        return text._replace(heard=self._state.glance(lambda store: find_heard(store, lines)))

    def _load_untried(self, following: Sequence[DreamProgress]) -> list[SessionText]:
        near = following[: 2 * MOST_SHARED]
        found = (self._load_text(one) for one in near if not one.attempts and not self._state.is_deleted(one.session))
        return [one for one in found if one is not None]

    def _open_task(self, text: SessionText) -> list[Event]:
        """The session's own task, opened where somebody asked for something."""
        id, title = text.tasks[0]
        is_asked = any(one.role == "user" and not one.mark for one in text.messages)
        if id in self._state.memory.tasks or not is_asked:
            return []
        return [self._state.event(Kind.TASK_OPENED, id=id, title=title, project=text.project, session=text.id)]


def _mark_too_large(problem: Exception) -> None:
    """For the first request of a run: what does not fit then fits in no run."""
    if isinstance(problem, OverBudget) and not problem.never:
        problem.never, problem.next = True, "Raise it: this session needs more than one run may spend."


def _find_line(insight: Insight, texts: Mapping[str, str]) -> str:
    """The line of the user's message that its first quote stands in, where that is long enough to be known again; else ""."""
    quote = insight.evidence[0]
    text = texts.get(str(quote.seq), "") if quote.author == USER else ""
    line = next((line.strip() for line in text.split("\n") if quote.quote in line), "")
    return line[:LONGEST_LINE] if len(line) >= SHORTEST_LINE else ""


def _find_reach(pieces: Sequence[Iterable[int]], read: set[int], since: int) -> tuple[int, list[list[int]]]:
    """Up to where a session is read for good, which is before the first failure, and the stretches behind that which are read.

    `pieces`: the seqs that each holds. A long message may be in several pieces: it is read when all of them are.
    """
    good: dict[int, bool] = {}
    for n, seqs in enumerate(pieces, 1):
        for seq in seqs:
            good[seq] = good.get(seq, True) and n in read
    stretches = [(is_read, [seq for seq, _ in run]) for is_read, run in groupby(sorted(good.items()), key=itemgetter(1))]
    if stretches and stretches[0][0]:
        since = max(since, stretches.pop(0)[1][-1])
    return since, [[seqs[0], seqs[-1]] for is_read, seqs in stretches if is_read]


def _seqs(turns: Iterable[TurnGiven]) -> Iterator[int]:
    return (int(said.seq.partition(".")[0]) for turn in turns if not turn.known for said in turn.messages)
