"""One run over sessions that were chosen (run.py), under the lock: what each gave, as one append.

Sessions were finished and indexed when they were chosen: for each only its own rows are asked for, and what is remembered is kept
up with what is appended. So a session costs the same however many were dreamed before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.dream.backends.api import Answer, Given, TaskGiven, TurnGiven, Usage, spent_before
from dreamkeep.dream.backends.checks import KnownInsights, checked, proposed, turns_given
from dreamkeep.dream.backends.model.reading import MOST_SHARED, SessionText
from dreamkeep.dream.backends.model.session import ModelReader, as_insights, session_text
from dreamkeep.dream.consolidate.consolidate import share
from dreamkeep.dream.consolidate.inbox import end_suggestions, suggestions
from dreamkeep.dream.run import Ask, Parts, Scope, Settings, report
from dreamkeep.errors import DreamkeepError, NoAnswer, OverBudget, Unanswered
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host
from dreamkeep.index.heard_before import find_heard
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.memory import note
from dreamkeep.memory.dreams import COMPLETED, FAILED, PENDING, START, DreamProgress
from dreamkeep.memory.insight import INBOX, REJECTED, USER, Insight, task_id
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import ACTIVE
from dreamkeep.memory.score import earliest_time
from dreamkeep.memory.tables import INSIGHTS, NOTES, RESTS, TASKS
from dreamkeep.memory.task import OPEN, Task
from dreamkeep.session.reading.digest import find_unheard
from dreamkeep.session.reading.origin import LONGEST_LINE, SHORTEST_LINE

if TYPE_CHECKING:
    from dreamkeep.index.store import Store
    from dreamkeep.session.messages import Message
    from dreamkeep.session.summary import Summary

#: The last word of a text that was cut, where it could be a part of a key.
_CUT = re.compile(r"[\w+/=.:~-]+…$", re.ASCII)
_GONE = "the session no longer exists"
_STOPPED = "the dream was stopped"
_WAITS = "it is waiting for answers"
#: Why a note waits.
_FOUND = "a dream found it; the user decides"
_TASKS_GIVEN = 8
_INSIGHTS_GIVEN = 20
#: Families of events that say what is remembered; and others after which it is not what it was.
_TELLING = frozenset(("insight", "note", "task", "project"))
_UNSAYING = frozenset((Kind.DREAM_UNDONE, Kind.SESSION_DELETED))
#: After so many sessions the index follows: then neither it nor who asks it has much to catch up with.
_FOLLOW = 50


class SessionResult(NamedTuple):
    """What one session gave. `events`: to be appended together, `dream.read` last."""

    session: str
    status: str
    reason: str
    events: list[Event]
    usage: Usage
    dropped: Counter[str]


class Deletions:
    """Which sessions are deleted while we read, and whether others told something. After a look at the index, only what is new in
    the keep's own journal is read."""

    def __init__(self, host: Host, root: str, ask: Ask[Any], forget: Callable[[str], object]) -> None:
        at, dead = ask(lambda store: (store.place(KEEP), set(store.tombstones())))
        self._tombs = Tombstones(host, root, at.position if at else None, dead, self._hear)
        self.forget = forget
        self._ours: set[str] = set()
        self._redact_reason = False

    def has(self, session: str) -> bool:
        return self._tombs.has(session)

    def note_own(self, events: Iterable[Event]) -> None:
        """What we are about to append: nobody else's."""
        self._ours.update(event.id for event in events)

    def others_told(self) -> bool:
        """Whether somebody else changed what is remembered since this was asked last: a note, an edited page, an agent's tag."""
        self._tombs.follow()
        told, self._redact_reason = self._redact_reason, False
        return told

    def _hear(self, event: Event) -> None:
        if event.id in self._ours:
            self._ours.discard(event.id)
        elif event.kind.partition(".")[0] in _TELLING or event.kind in _UNSAYING:
            self._redact_reason = True


class SessionRun:
    """Under the lock."""

    def __init__(
        self,
        host: Host,
        append: Callable[[Sequence[Event]], object],
        ids: Ids,
        ask: Ask[Any],
        settings: Settings,
        parts: Parts,
        name: str,
    ) -> None:
        self._host = host
        self._deletions: Deletions | None = None
        self._glance = ask
        self._take_in: Callable[[], object] = lambda: None
        self._append = append
        self._ids = ids
        self._ask = ask
        self._settings = settings
        self._parts = parts
        self._reader = ModelReader(parts.model, settings.chunk_tokens) if parts.model is not None else None
        #: Sessions whose turn comes after the one in hand.
        self._following: Sequence[DreamProgress] = ()
        self._name = name
        self._id = ids.new()
        self._started_at = rfc3339(host.now())
        self.memory = Memory()
        self._used = Usage()
        self._changes: Counter[str] = Counter()
        self._suggested = 0
        #: Suggestions that nobody decided on in time.
        self._expired = 0
        self._dropped: Counter[str] = Counter()
        self._seen: list[dict[str, Any]] = []
        #: Notes that were active when the run began; and those of them that it took away.
        self._began: frozenset[str] = frozenset()
        self._gone: set[str] = set()
        #: Why nothing more may be asked in this run.
        self._spent = ""
        #: … because nobody answers.
        self._nobody = ""

    def all(
        self,
        scope: Scope,
        deletions: Deletions | None = None,
        glance: Ask[Any] | None = None,
        publish: Callable[[str], list[dict[str, Any]]] | None = None,
        take_in: Callable[[], object] = lambda: None,
        first: Sequence[Event] = (),
    ) -> dict[str, Any]:
        """`deletions`: for who writes. `publish`: writes the pages, given the run; what became of them is kept in its report.
        `take_in`: journals what was edited on them meanwhile. `first`: what a preview takes for journaled."""
        self._deletions, self._glance, self._take_in = deletions, glance or self._ask, take_in
        self.memory = self._ask(_remembered)
        for event in first:
            self.memory.apply(event)
        self._began = frozenset(one.id for one in self.memory.notes.values() if one.state == ACTIVE)
        listed = [_listed(one, scope.again) for one in scope.sessions]
        began = {"trigger": scope.trigger, "backend": self._name, "sessions": listed, "shelves": True}
        self._journal([self._event(Kind.DREAM_STARTED, **began)])
        for n, (one, after) in enumerate(zip_longest(scope.sessions, scope.sessions[1:]), 1):
            self._spent = self._spent or self._parts.spent(self._used)
            self._following = scope.sessions[n:]
            try:
                done = self._put_off(one, self._spent) if self._spent else self._dream_session(one)
            except KeyboardInterrupt:
                self._leave_off(scope, scope.sessions[n - 1 :])
                raise
            self._journal(_then(done.events, after))
            self._unsay_if_deleted(one.session)
            self._used = self._used.plus(done.usage)
            self._dropped.update(done.dropped)
            self._seen.append({"id": one.session, "status": done.status, **({"reason": done.reason} if done.reason else {})})
            if deletions and n % _FOLLOW == 0:
                self._ask(lambda store: None)
        self._journal(self._thought_over())
        self._journal(self._merged())
        ended = end_suggestions(self.memory, rfc3339(self._host.now()), self._id)
        self._journal([self._event(kind, **body) for kind, body in ended])
        pages = {"pages": publish(self._id)} if publish else {}
        self._seen = [_wordless(one) if self._is_deleted(one["id"]) else one for one in self._seen]
        made = {**self._report(scope, self._spent), **pages}
        self._journal([self._event(Kind.DREAM_FINISHED, report=made)])
        for one in self._seen:
            if one.get("reason", _GONE) != _GONE:
                self._unsay_if_deleted(one["id"])
        return made

    def _is_deleted(self, session: str) -> bool:
        return self._deletions is not None and self._deletions.has(session)

    def _journal(self, events: Sequence[Event]) -> None:
        """Durable, then known: the fold is the same as whoever reads the journal has."""
        if not events:
            return
        if self._deletions:
            self._deletions.note_own(events)
        self._append(events)
        for event in events:
            before = len(suggestions(self.memory.notes.values())) if event.kind == Kind.DREAM_SHELVED else 0
            self._expired += event.kind == Kind.NOTE_EXPIRED and self._is_suggested(str(event.body["id"]))
            self.memory.apply(event)
            self._changes[event.kind] += 1
            self._suggested += event.kind == Kind.NOTE_ADDED and event.body.get("state") == note.SUGGESTED
            if event.kind == Kind.DREAM_SHELVED:
                self._suggested += len(suggestions(self.memory.notes.values())) - before

    def _is_suggested(self, id: str) -> bool:
        found = self.memory.notes.get(id)
        return found is not None and found.state == note.SUGGESTED

    def _unsay_if_deleted(self, session: str) -> None:
        """Deleted while we read it: what we said of it came after what the deletion took away, so it is for us to take it away.
        Asked after it was said: a deletion that begins later than this finds it there."""
        if self._deletions and self._is_deleted(session):
            self._deletions.forget(session)
            self.memory = self._ask(_remembered)

    def _heard(self) -> list[Insight]:
        """What others told while a backend thought is known from here on; the insights that are new by that. A user may have told
        it by hand, on a page."""
        if not self._deletions:
            return []
        self._take_in()
        if not self._deletions.others_told():
            return []
        before, self.memory = self.memory.insights, self._ask(_remembered)
        return [one for id, one in self.memory.insights.items() if id not in before]

    def _thought_over(self) -> list[Event]:
        """Whoever told something while we wrote knew nothing of what we wrote, nor we of that."""
        heard = self._heard()
        decisions = self._parts.consolidate(self.memory, heard, rfc3339(self._host.now()), self._id) if heard else ()
        return [] if self._too_much("", decisions) else [self._event(kind, **body) for kind, body in decisions]

    def _too_much(self, session: str, decisions: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Why these may not be, "" where they may: measured against what is remembered now; and, with what this run took away
        before, against what was there when it began."""
        allowed = self._settings.loss_guard
        alone = self._parts.loss(self.memory, decisions)
        gone = self._began & set(self._parts.lost(self.memory, decisions))
        together = share(len(self._gone | gone), len(self._began)) if gone else 0.0
        if max(alone, together) <= allowed:
            self._gone |= gone
            return ""
        if alone > allowed:
            what, way = f"it would remove {alone:.0%} of the notes", "DREAMKEEP_DREAM_LOSS_GUARD=1 dreamkeep dream"
        else:
            what, way = f"with it this run would remove {together:.0%} of the notes", "dreamkeep dream"
        return f"{what}; {allowed:.0%} is allowed (dream.loss_guard). If that is right, run `{way} --session {session}`"

    def _event(self, _kind: str, /, **body: Any) -> Event:
        return Event(self._ids.new(), _kind, rfc3339(self._host.now()), {"run": self._id, **body})

    def _put_off(self, one: DreamProgress, why: str) -> SessionResult:
        read = self._event(Kind.DREAM_READ, session=one.session, upto=one.read, status=PENDING, reason=why)
        return SessionResult(one.session, PENDING, why, [read], Usage(), Counter())

    def _leave_off(self, scope: Scope, left: Sequence[DreamProgress]) -> None:
        """A user has stopped it: no session failed by that, nor was tried. What was read before is kept."""
        events: list[Event] = []
        for one, after in zip_longest(left, left[1:]):
            events += _then(self._put_off(one, _STOPPED).events, after)
            self._seen.append({"id": one.session, "status": PENDING, "reason": _STOPPED})
        self._journal([*events, self._event(Kind.DREAM_FINISHED, report=self._report(scope, _STOPPED))])

    # -- one session

    def _dream_session(self, one: DreamProgress) -> SessionResult:
        try:
            return self._dreamed(one) if self._reader is None else self._read_by_model(one, self._reader)
        except (DreamkeepError, OSError) as problem:
            return self._failed(one, str(problem))
        except Exception as problem:  # a backend is anybody's code, and a session's words are anything: it is this one's failure
            return self._failed(one, f"{type(problem).__name__}: {problem}")

    def _failed(self, one: DreamProgress, why: str) -> SessionResult:
        why = self._redact_reason(why)
        read = self._event(Kind.DREAM_READ, session=one.session, upto=one.read, status=FAILED, reason=why)
        return SessionResult(one.session, FAILED, why, [read], Usage(), Counter())

    def _redact_reason(self, why: str) -> str:
        """A backend's words may hold anything: a key that was refused, a piece of the session. Redacted before it is cut."""
        return self._parts.redact(why[:20_000])[:1000]

    def _dreamed(self, one: DreamProgress) -> SessionResult:
        # It is finished, and was indexed when it was chosen: only if it is not there as a whole any more, all is looked at again.
        gone = self._is_deleted(one.session)
        found = None if gone else self._glance(lambda store: session_given(store, one) if _is_whole(store, one) else None)
        found = found or self._ask(lambda store: session_given(store, one))
        if found is None:
            return self._failed(one, _GONE)
        summary, turns = found
        opened, task = self._task(summary, turns)
        known = KnownInsights(found for found in self.memory.insights_of_session(one.session) if not found.waits)
        insights: list[Insight] = []
        usage, dropped, failure, heard = Usage(), Counter[str](), "", set[int]()
        pieces = self._parts.chunks(turns, self._parts.chunk_tokens or self._settings.chunk_tokens) if turns else []
        for n, piece in enumerate(pieces, 1):
            given = self._make_given(summary, piece, (n, len(pieces)), task)
            try:
                answer = self._parts.backend.backfill(given)
                if isinstance(answer, Answer):
                    usage = usage.plus(answer.usage)
                    dropped.update(answer.dropped)
                proposals = proposed(answer)
            except Exception as problem:  # this chunk is tried again later; the others go on
                usage = usage.plus(spent_before(problem))
                if self._stops(problem):
                    break
                failure = failure or self._redact_reason(f"chunk {n} of {len(pieces)}: {type(problem).__name__}: {problem}")
                continue
            trusted = self._parts.trusted
            made = checked(proposals, given, known, run=self._id, redact=self._parts.redact, trusted=trusted)
            insights += made.insights
            dropped += made.dropped
            heard.add(n)
        insights = self._unknown_to_files(self._not_pasted(insights, turns, dropped), summary.cwd, dropped)
        return self._concluded(one, opened, insights, usage, dropped, failure, *_how_far(pieces, heard, one.read))

    def _not_pasted(self, insights: Sequence[Insight], turns: Iterable[TurnGiven], dropped: Counter[str]) -> list[Insight]:
        """Without what an agent wrote first in another session, so that the user only pasted it here."""
        if not insights:
            return []
        texts = {said.seq: said.text for turn in turns for said in turn.messages if said.role == "user"}
        lines = {one.id: _line_of(one, texts) for one in insights}
        heard = self._glance(lambda store: find_heard(store, set(filter(None, lines.values()))))
        found = [one for one in insights if lines[one.id] not in heard]
        if len(found) < len(insights):
            dropped["an agent's words from another session"] += len(insights) - len(found)
        return found

    def _unknown_to_files(self, insights: Sequence[Insight], folder: str, dropped: Counter[str]) -> list[Insight]:
        """Without what the user's own files say already. What contradicts one of them waits for the user."""
        statements = self._parts.known(folder) if insights else ()
        if not statements:
            return list(insights)
        from dreamkeep.dream.consolidate.known_files import contradicts_file, find_contradiction, find_known

        found: list[Insight] = []
        for one in insights:
            if said := find_known(one.text, statements):
                dropped[f"known from {said.place.rpartition(':')[0]}"] += 1
                continue
            # Of what a model wrote a model is asked, when it is merged.
            against = None if one.by_model else find_contradiction(one.text, statements)
            found.append(one._replace(shelf=INBOX, why=contradicts_file(against[0])) if against else one)
        return found

    def _near_files(self, one: Insight) -> dict[str, tuple[str, str]]:
        """What the user's own files say near it, by the name that a request gives it."""
        from dreamkeep.dream.consolidate.known_files import nearest_statements

        session = one.evidence[0].session if one.evidence else ""
        summary = self._glance(lambda store: store.session(session)) if session else None
        statements = self._parts.known(summary.cwd) if summary is not None else ()
        return {found.name: (found.place, found.text) for found in nearest_statements(one.text, statements)}

    # -- with a model

    def _read_by_model(self, one: DreamProgress, reader: ModelReader) -> SessionResult:
        text = self._text(one, reader)
        if text is None:
            return self._failed(one, _GONE)
        before, known = reader.model.spent, KnownInsights(self.memory.insights_of_session(one.session))
        insights: list[Insight] = []
        dropped, failure, heard, shown, waits = Counter[str](), "", set[int](), list[tuple[int, ...]](), False
        # One that failed before is asked about by itself: it may be what spoils a shared request.
        ahead = self._texts_ahead if not one.attempts else list
        for n, piece in enumerate(reader.read(text, ahead), 1):
            shown.append(piece.seqs)
            if isinstance(piece.problem, Unanswered):
                waits = True
                continue
            if piece.problem is not None:
                if isinstance(piece.problem, OverBudget) and before == Usage() and not heard and not failure:
                    _never_enough(piece.problem)
                if self._stops(piece.problem):
                    break
                failure = failure or self._redact_reason(f"part {n}: {type(piece.problem).__name__}: {piece.problem}")
                continue
            heard.add(n)
            dropped.update(piece.dropped)
            for judged in piece.judged:
                found = as_insights(judged, text, self._id)
                new = [] if known.has(found[0]) else found
                insights += new
                dropped["duplicate"] += not new
                known.add(found[0])
        if waits:
            return self._put_off(one, _WAITS)  # all at once, when the rest is answered, too
        usage = _since(before, reader.model.spent)
        insights = self._unknown_to_files(insights, text.cwd, dropped)
        opened = self._task_of(text)
        upto, also = (one.finished, []) if len(heard) == len(shown) else _reach(shown, heard, one.read)
        return self._concluded(one, opened, insights, usage, +dropped, failure, upto, also)

    def _text(self, one: DreamProgress, reader: ModelReader) -> SessionText | None:
        gone = self._is_deleted(one.session)
        found = None if gone else self._glance(lambda store: session_said(store, one) if _is_whole(store, one) else None)
        found = found or self._ask(lambda store: session_said(store, one))
        if found is None:
            return None
        summary, messages = found
        task, known = task_id(summary.id), self.memory.tasks.get(task_id(summary.id))
        title = known.title if known else self._title(summary)
        others = ((each.id, each.title) for each in self._open_tasks(summary.project, task, one.completion_at or ""))
        read = ((0, one.read), *one.also)
        tasks = ((task, title), *others)
        secrets = reader.model.secrets
        text = session_text(summary, messages, title, read=read, finished=one.finished, tasks=tasks, secrets=secrets)
        lines = find_unheard(text.messages)
        return text._replace(heard=self._glance(lambda store: find_heard(store, lines)))

    def _texts_ahead(self) -> list[SessionText]:
        """Sessions that follow and were never tried."""
        assert self._reader is not None
        fresh = [one for one in self._following[: 2 * MOST_SHARED] if not one.attempts and not self._is_deleted(one.session)]
        found = (self._text(one, self._reader) for one in fresh)
        return [one for one in found if one is not None]

    def _task_of(self, text: SessionText) -> list[Event]:
        """The session's own task, opened where somebody asked for something."""
        id, title = text.tasks[0]
        said = any(one.role == "user" and not one.mark for one in text.messages)
        if id in self.memory.tasks or not said:
            return []
        return [self._event(Kind.TASK_OPENED, id=id, title=title, project=text.project, session=text.id)]

    def _merged(self) -> list[Event]:
        """What the insights that nobody compared yet have to do with what is remembered. What can't be asked now is asked by the
        next run, or when no session waits for answers any more."""
        if self._reader is None or self._spent or any(one.get("reason") == _WAITS for one in self._seen):
            return []  # with what the sessions that wait give, it would be another question
        waiting = [one for one in self.memory.insights.values() if one.is_unmerged]
        found: list[Event] = []
        for _, new in groupby(sorted(waiting, key=lambda one: (one.project, one.said_at or "", one.id)), _project_of):
            try:
                found += self._merged_in(list(new), self._reader)
            except Exception as problem:  # whoever is asked is anybody: the notes stay as they are
                if not isinstance(problem, Unanswered):
                    self._dropped[f"not merged: {type(problem).__name__}"] += 1
                if self._stops(problem):
                    break
        return found

    def _merged_in(self, new: list[Insight], reader: ModelReader | None) -> list[Event]:
        assert reader is not None
        before = reader.model.spent
        try:
            links = reader.merge(self.memory, new, self._near_files)
        finally:
            self._used = self._used.plus(_since(before, reader.model.spent))
        self._dropped.update(f"known from {body['known'].rpartition(':')[0]}" for _, body in links if "known" in body)
        now = rfc3339(self._host.now())
        events = [self._event(kind, **body) for kind, body in links]
        events.append(self._event(Kind.DREAM_MERGED, insights=[one.id for one in new]))
        decisions = self._decided([], [], events, now)
        return [] if self._too_much("", decisions) else [*events, *(self._event(kind, **body) for kind, body in decisions)]

    def _decided(
        self, insights: Sequence[Insight], heard: Sequence[Insight], events: Sequence[Event], now: str
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """What follows for the notes once these events are known: what is clear becomes a note, the rest waits in the inbox."""
        from dreamkeep.dream.consolidate.statements import suggest

        after = self.memory.copy()
        for event in events:
            after.apply(event)
        linked = [str(event.body[key]) for event in events if event.kind == Kind.INSIGHT_LINKED for key in ("id", "other")]
        known = [after.insights[id] for id in dict.fromkeys((*(one.id for one in insights), *linked)) if id in after.insights]
        speaking = [one for one in known if not one.waits and one.state != REJECTED]
        decisions = list(self._parts.consolidate(after, [*speaking, *heard], now, self._id))
        for n, (kind, body) in enumerate(decisions):
            after.apply(Event(f"planned-{n}", kind, now, body))
        for one in known:
            if one.waits and any(one.id == new.id for new in insights):
                for made in suggest(after, one, keep=True, reason=_FOUND, run=self._id).decisions:
                    after.apply(Event(f"suggested-{one.id}", made.kind, now, made.body))
                    decisions.append((made.kind, made.body))
        return decisions

    def _stops(self, problem: Exception) -> bool:
        """Whether nothing more may be asked in this run, or nobody is there to be asked."""
        if isinstance(problem, NoAnswer) and problem.nobody:
            self._nobody = self._spent = self._redact_reason(str(problem))
        elif isinstance(problem, OverBudget) and not problem.never:
            self._spent = self._redact_reason(str(problem))
        return bool(self._spent)

    def _concluded(
        self,
        one: DreamProgress,
        opened: list[Event],
        insights: list[Insight],
        usage: Usage,
        dropped: Counter[str],
        failure: str,
        upto: int,
        also: list[list[int]],
    ) -> SessionResult:
        # Its completion was recorded after all that it holds was captured.
        limits = one.completion_at, rfc3339(self._host.now())
        insights = [found._replace(said_at=earliest_time(found.said_at, *limits)) for found in insights]
        added = [self._event(Kind.INSIGHT_ADDED, **{**found.as_json(), "run": self._id}) for found in insights]
        heard, now = self._heard(), rfc3339(self._host.now())
        if self._reader is None and not any(found.waits for found in insights):
            decisions = self._parts.consolidate(self.memory, [*insights, *heard], now, self._id)
        else:
            decisions = self._decided(insights, heard, added, now)
        why = self._too_much(one.session, decisions)
        if why:
            return SessionResult(one.session, FAILED, why, [*self._failed(one, why).events], usage, dropped)
        notes = [self._event(kind, **body) for kind, body in decisions]
        # What failed has failed, also where the budget ended after it: else nobody would ever count that, nor tell why.
        left = self._spent if upto < one.finished else ""
        status = FAILED if failure else PENDING if left else COMPLETED
        why = " ".join(filter(None, (failure, left)))
        artifacts = [*(found.id for found in insights), *(str(body["id"]) for kind, body in decisions if kind == Kind.NOTE_ADDED)]
        read = self._event(
            Kind.DREAM_READ,
            session=one.session,
            upto=upto if why else one.finished,
            status=status,
            reason=why,
            artifacts=artifacts,
            **({"also": also} if why and also else {}),
        )
        return SessionResult(one.session, status, why, [*opened, *added, *notes, read], usage, dropped)

    def _task(self, summary: Summary, turns: Sequence[TurnGiven]) -> tuple[list[Event], TaskGiven]:
        """The session's own task: what it is for, by its title or first prompt. None is opened where nobody asked for anything,
        as in a subagent's: what that was for is its parent's task."""
        id = task_id(summary.id)
        known = self.memory.tasks.get(id)
        title = known.title if known else self._title(summary)
        opens = not known and bool(turns)
        opened = [self._event(Kind.TASK_OPENED, id=id, title=title, project=summary.project, session=summary.id)] if opens else []
        return opened, TaskGiven(id, title, self._insights_of(id))

    def _title(self, summary: Summary) -> str:
        """Half a secret looks like none: what is cut is cut after it was redacted, and a word that was cut before is left out."""
        whole = _CUT.sub("…", " ".join(summary.title.split()))
        return self._parts.redact(whole)[:120] or summary.id

    def _make_given(self, summary: Summary, turns: Sequence[TurnGiven], chunk: tuple[int, int], task: TaskGiven) -> Given:
        others = self._open_tasks(summary.project, task.id)
        tasks = (task, *(TaskGiven(one.id, one.title, self._insights_of(one.id)) for one in others))
        return Given(summary.id, summary.agent, summary.project, summary.cwd, self._title(summary), tasks, tuple(turns), chunk)

    def _open_tasks(self, project: str, but: str, before: str = "") -> list[Task]:
        """`before`: only those that were there by then. What a dream opens meanwhile must not change what is asked."""
        ours = (one for one in self.memory.tasks_of_project(project) if one.state == OPEN and one.id != but)
        open_ones = (one for one in ours if not before or (one.opened_at or "") <= before)
        return nlargest(_TASKS_GIVEN, open_ones, key=lambda one: one.opened_at or "")

    def _insights_of(self, task: str) -> tuple[tuple[str, str], ...]:
        known = [one for one in self.memory.insights_of_task(task) if not one.waits]
        return tuple((one.type, one.text) for one in known[-_INSIGHTS_GIVEN:])

    def _report(self, scope: Scope, why: str) -> dict[str, Any]:
        statuses = Counter(one["status"] for one in self._seen)
        good = statuses[COMPLETED]
        in_vain = bool(statuses[FAILED] or self._nobody)
        status = "completed" if good == len(self._seen) else "partial" if good or not in_vain else "failed"
        return report(
            scope,
            status=status,
            why=why,
            run=self._id,
            started_at=self._started_at,
            finished_at=rfc3339(self._host.now()),
            processed=good,
            failed=statuses[FAILED],
            insights_added=self._changes[Kind.INSIGHT_ADDED],
            notes={
                "added": max(0, self._changes[Kind.NOTE_ADDED] - self._suggested),
                "suggested": self._suggested,
                "strengthened": self._changes[Kind.NOTE_STRENGTHENED],
                "superseded": self._changes[Kind.NOTE_SUPERSEDED],
                "retracted": self._changes[Kind.NOTE_RETRACTED] + self._changes[Kind.NOTE_EXPIRED] - self._expired,
                "expired": self._expired,
            },
            dropped=[{"why": reason, "count": count} for reason, count in sorted(self._dropped.items())],
            usage=self._used._asdict(),
            sessions=self._seen,
            **({"unanswered": self._nobody} if self._nobody else {}),
        )


# -- asked of the index


def estimate(store: Store, scope: Scope) -> dict[str, int]:
    """How much there is to read. Tokens as they are likely counted."""
    from dreamkeep.dream.backends.chunks import turn_tokens

    turns = messages = tokens = 0
    for one in scope.sessions:
        found = session_given(store, one)
        for turn in found[1] if found else ():
            turns += not turn.known
            messages += 0 if turn.known else len(turn.messages)
            tokens += turn_tokens(turn)
    return {"sessions": len(scope.sessions), "turns": turns, "messages": messages, "tokens": tokens}


def _remembered(store: Store) -> Memory:
    """All that a run asks for."""
    return Memory.load((table, *row) for table in (INSIGHTS, NOTES, TASKS, RESTS) for row in store.memory_table(table))


def _line_of(insight: Insight, texts: Mapping[str, str]) -> str:
    """The line of the user's message that its first quote stands in, where that is long enough to be known again; else ""."""
    quote = insight.evidence[0]
    text = texts.get(str(quote.seq), "") if quote.author == USER else ""
    line = next((line.strip() for line in text.split("\n") if quote.quote in line), "")
    return line[:LONGEST_LINE] if len(line) >= SHORTEST_LINE else ""


def _is_whole(store: Store, one: DreamProgress) -> bool:
    """Whether it is indexed as far as it is to be read: somebody may be building the index anew."""
    place = store.place(folder_of(one.session))
    return place is not None and place.session == one.session and place.position.seq >= one.finished


def session_given(store: Store, one: DreamProgress) -> tuple[Summary, list[TurnGiven]] | None:
    summary = store.session(one.session)
    if summary is None:
        return None
    if any(kind == "subagent" for kind, _ in summary.lineage):
        return summary, []  # its user is an agent: what matters of it, its parent was told
    return summary, turns_given(store.turns(one.session), store.messages(one.session), one.read + 1, one.finished, one.also)


def session_said(store: Store, one: DreamProgress) -> tuple[Summary, list[Message]] | None:
    summary = store.session(one.session)
    if summary is None:
        return None
    if any(kind == "subagent" for kind, _ in summary.lineage):
        return summary, []  # its user is an agent: what matters of it, its parent was told
    return summary, store.messages(one.session)


def _project_of(one: Insight) -> str:
    return one.project


def _never_enough(problem: OverBudget) -> None:
    if not problem.never:
        problem.never, problem.next = True, "Raise it: this session needs more than one run may spend."


def _since(before: Usage, now: Usage) -> Usage:
    calls, tokens_in, tokens_out = now.calls - before.calls, now.tokens_in - before.tokens_in, now.tokens_out - before.tokens_out
    return Usage(calls, tokens_in, tokens_out, now.usd - before.usd)


def _listed(one: DreamProgress, again: bool) -> dict[str, Any]:
    """`again`: from its beginning, or from where on an undone run had read it (`when.asked_for`)."""
    taken_back = one.taken_back is not None and one.read <= one.taken_back
    told = {"again": START} if again else {"again": True} if taken_back else {}
    return {"session": one.session, "first": one.read + 1, "last": one.finished, **told}


def _wordless(told: Mapping[str, Any]) -> dict[str, Any]:
    """Why a session failed may be told in its own words: not of one that was deleted since."""
    return {**told, **({"reason": _GONE} if "reason" in told else {})}


def _then(events: list[Event], after: DreamProgress | None) -> list[Event]:
    """With whose turn comes next, in the same append: whoever dies now has tried that one."""
    *others, read = events
    return events if after is None else [*others, read._replace(body={**read.body, "next": after.session})]


def _how_far(pieces: Sequence[Sequence[TurnGiven]], heard: set[int], read: int) -> tuple[int, list[list[int]]]:
    """Up to where it is read for good, which is before the first failure, and the stretches behind that which are read too.

    A long message may be in several pieces: it is read when all of them are.
    """
    return _reach([tuple(_seqs(piece)) for piece in pieces], heard, read)


def _reach(pieces: Sequence[Sequence[int]], heard: set[int], read: int) -> tuple[int, list[list[int]]]:
    """The same of the seqs that each piece holds."""
    good: dict[int, bool] = {}
    for n, seqs in enumerate(pieces, 1):
        for seq in seqs:
            good[seq] = good.get(seq, True) and n in heard
    stretches = [(is_read, [seq for seq, _ in run]) for is_read, run in groupby(sorted(good.items()), key=itemgetter(1))]
    if stretches and stretches[0][0]:
        read = max(read, stretches.pop(0)[1][-1])
    return read, [[seqs[0], seqs[-1]] for is_read, seqs in stretches if is_read]


def _seqs(turns: Iterable[TurnGiven]) -> Iterator[int]:
    return (int(said.seq.partition(".")[0]) for turn in turns if not turn.known for said in turn.messages)
