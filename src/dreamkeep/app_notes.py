"""Part of app: what is remembered. The verbs of `Keep` for notes, insights and tasks; wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, DreamkeepError, NotFound, Refused, from_os
from dreamkeep.event import Event, Kind, rfc3339

if TYPE_CHECKING:
    from dreamkeep.dream.run import Dreaming
    from dreamkeep.dream.told import Ground, Told
    from dreamkeep.index.store import Store
    from dreamkeep.memory.insight import Insight
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.note import Note

T = TypeVar("T")
_LOCK = "state/told.lock"
_BY_AGENT = "agent"
_WAIT_S = 30.0
#: In so many sessions the user's words are looked for, where no session is named.
_LATE = 10


class Remembering(Part):
    """What `Keep` can do with notes and tasks, and how its parts ask what is remembered."""

    if TYPE_CHECKING:

        def _similar(self, one: str, other: str) -> float: ...

        def _dreaming(self, *, look: bool = False) -> Dreaming: ...

        def _publish(self, run: str) -> list[dict[str, Any]]: ...

        def _take_in(self) -> list[dict[str, Any]]: ...

    def _memory(self, *tables: str) -> Memory:
        """What is remembered; only these tables of it, if some are named."""
        from dreamkeep.index import build
        from dreamkeep.memory.memory import Memory

        def load(store: Store) -> Memory:
            build.follow_keep(self._host, self.root, store)
            named = ((table, *row) for table in tables for row in store.memory_table(table))
            return Memory.load(named if tables else store.memory())

        return self._glance(load)

    def _remembering(self, act: Callable[[Memory], T]) -> T:
        """Ask what is remembered: only what is asked for is read. What fails in `act` itself is no failure of the index."""
        from dreamkeep.index import build
        from dreamkeep.index.sqlite_errors import Unusable
        from dreamkeep.memory.memory import Memory

        def asked(store: Store) -> tuple[list[T], Exception | None]:
            build.follow_keep(self._host, self.root, store)
            with store.reading():
                try:
                    return [act(Memory.on_demand(store.memory_row, store.memory_table))], None
                except Unusable:
                    raise
                except (DreamkeepError, OSError) as problem:
                    return [], problem

        done, problem = self._glance(asked)
        if problem:
            raise problem
        return done[0]

    # -- notes

    def notes(self, *, kind: str | None = None, state: str | None = "active", project: str | None = None) -> list[dict[str, Any]]:
        """What is remembered, best first. `state` None or "all": whatever became of it."""
        from dreamkeep.memory.insight import TYPES
        from dreamkeep.memory.note import STATES

        state = None if state == "all" else state
        _known(kind, TYPES, "kind")
        _known(state, (*STATES, "all"), "state")
        memory = self._memory("notes")
        newest = _newest(memory)
        found = [
            self._as_note(one, newest)
            for one in memory.notes.values()
            if kind in (None, one.kind) and state in (None, one.state) and project in (None, one.project)
        ]
        return sorted(found, key=lambda one: (not one["pinned"], -one["score"], one["id"]))

    def _counted_notes(self) -> dict[str, int]:
        """How many are active, how many wait for the user, and how many agents want to be retracted."""
        from dreamkeep.memory.note import ACTIVE, DOUBTED, SUGGESTED

        notes = list(self._memory("notes").notes.values()) if self.exists() else []
        states = [one.state for one in notes]
        return {ACTIVE: states.count(ACTIVE), SUGGESTED: states.count(SUGGESTED), DOUBTED: sum(map(_is_doubted, notes))}

    def _as_note(self, note: Note, newest: str | None) -> dict[str, Any]:
        from dreamkeep.memory.score import score

        shown = note.as_json()
        del shown["history"]
        return {**shown, "score": round(score(note, newest), 4), **({"doubted": True} if _is_doubted(note) else {})}

    def _note(self, memory: Memory, text: str) -> Note:
        found = [one for one in memory.notes.values() if one.id == text] or [
            one for one in memory.notes.values() if text and (one.id.startswith(text) or one.id.startswith(f"n-{text}"))
        ]
        if len(found) != 1:
            what = "no note" if not found else f"{len(found)} notes begin with"
            raise NotFound(f"{what} {text!r}", where="note", next="`dreamkeep notes` lists them.")
        return found[0]

    def dream_why(self, note: str) -> dict[str, Any]:
        """A note with what it rests on and what happened to it, step by step."""
        memory = self._memory("notes", "insights")
        found = self._note(memory, note)
        shown = self._as_note(found, _newest(memory))
        rests = [memory.insights[one].as_json() for one in found.insights if one in memory.insights]
        self._look_up_authors([quote for one in (shown, *rests) for quote in one["evidence"]])
        return {
            "note": shown,
            "insights": rests,
            "history": [step._asdict() for step in found.history],
        }

    def _look_up_authors(self, evidence: Sequence[dict[str, Any]]) -> None:
        """Of quotes that an older version journaled without their author: the message tells, where it is still there. How the
        words came into it is left open."""
        from dreamkeep.dream.backfill import author_at

        nameless = [quote for quote in evidence if not quote.get("author") and quote["quote"]]
        sessions = {str(quote["session"]) for quote in nameless}
        said = self._ask(lambda store: {one: store.messages(one) for one in sessions}) if sessions else {}
        for quote in nameless:
            if author := author_at(said[quote["session"]], quote["seq"], quote["quote"]):
                quote["author"] = author

    def note_add(self, text: str, *, kind: str = "preference", project: str = "") -> dict[str, Any]:
        """The user's own word: it counts more than what an agent said. What it contradicts is superseded at once, and what says
        the same already is strengthened: the note that stands for it now, with `changed`: what became of which note, and why."""
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        words = redacted(" ".join(text.split()))
        return self._added(lambda now: told.by_user(words, kind, project, now))

    def note_suggest(
        self, text: str, *, kind: str = "preference", project: str = "", session: str | None = None, quote: str | None = None
    ) -> dict[str, Any]:
        """What an agent wants to be remembered: a note in the state `suggested`, which waits for `note_change(note, "confirm")`.
        It counts at once, as the user's own word, if `quote` is what the user typed in `session` (without it: in a late session
        of the project) and `text` says no more than that. Answers as `note_add`."""
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted
        from dreamkeep.memory.insight import AGENT, TYPED, USER

        words = redacted(" ".join(text.split()))
        told.check_note(words, "text")
        if quote:
            where = self._ground(session, quote) if session else self._ground_in(project, quote)
        else:
            where = self._ground(session, "") if session else told.Ground(project)
        where = where._replace(project=project)
        typed = where.quote is not None and (where.quote.author, where.quote.origin) == (USER, TYPED) and not where.among_agents
        author = USER if typed else AGENT
        return self._added(lambda now: told.by_agent(kind, words, where, now=now, author=author, longest=told.LONGEST_NOTE))

    def _added(self, say: Callable[[str], Insight]) -> dict[str, Any]:
        from dreamkeep.dream import told

        said, done = self._tell(say, keep=True)
        memory = self._memory("notes")
        if not done.note:
            raise Refused(
                "the user has already rejected this note",
                where=said.text[:80],
                next="Only the user can bring it back; `dreamkeep notes --state rejected` lists it.",
            )
        return {**self._as_note(memory.notes[done.note], _newest(memory)), "changed": told.as_json(done)}

    def _ground_in(self, project: str, quote: str) -> Ground:
        """Where the user typed it: in one of the last sessions of the project, newest first."""
        from dreamkeep.memory.insight import USER

        for one in self._ask(lambda store: store.sessions(project=project or None, limit=_LATE)):
            try:
                found = self._ground(one.id, quote)
            except NotFound:
                continue
            if found.quote is not None and found.quote.author == USER and not found.among_agents:
                return found
        raise NotFound(
            "the user typed those words in no recent session",
            where="quote",
            next="Quote the user's message word for word. Without a quote, the note is a suggestion.",
        )

    def add_insight(
        self,
        type: str,
        text: str,
        *,
        session: str | None = None,
        quote: str | None = None,
        task: str | None = None,
        project: str | None = None,
        author: str = "agent",
    ) -> dict[str, Any]:
        """An agent tags its own work: `{insight, note, changed}`; found at once by `search` and `notes`, and `dream why` tells.

        `type`: one of memory/insight.py's TYPES. `session`: the one it works in (an id, or a unique beginning): the insight then
        belongs to that session, its project and its task, and goes when that is deleted. `quote`: words of one of its messages,
        word for word, as evidence. `author="user"`: these are the user's words; believed only if `quote` stands in what the user
        typed. `project`: where there is no session. `task`: an id, or a unique beginning.

        It is a suggestion (`insight["source"]` is "suggestion"), unless `quote` is what the user typed and `text` says no more:
        its note is in the state `suggested`, on no page and in no pack, until the user confirms it.

        `note`: the note that stands for it now; None where it is no memory by itself (a hypothesis, a piece of evidence), or
        where the user rejected it before. `changed`: `[{what, id, reason}]`, what became of notes. The same again changes
        nothing.
        """
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        words = redacted(" ".join(text.split()))
        if quote and not session:
            raise BadUsage("a quote needs a session", where="quote", next="Name the session, or leave the quote out.")
        where = self._ground(session, quote or "") if session else told.Ground(project or "")
        if task:
            where = where._replace(task=self.task_show(task)["id"])
        said, done = self._tell(lambda now: told.by_agent(type, words, where, now=now, author=author), keep=False)
        memory = self._memory("notes", "insights")
        note = memory.notes.get(done.note)
        return {
            "insight": memory.insights.get(said.id, said).as_json(),
            "note": self._as_note(note, _newest(memory)) if note else None,
            "changed": told.as_json(done),
        }

    def _ground(self, session: str, quote: str) -> Ground:
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        id = self.resolve(session)
        summary, messages = self._ask(lambda store: (store.session(id), store.messages(id)))
        if summary is None:
            raise NotFound(f"no session {id!r}", where="session", next="`dreamkeep sessions` lists them.")
        return told.ground(summary, messages, quote, redacted)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Whoever says something knows all that was said before: of two at once both would hold, however they contradict each
        other. Held for as long as it takes to conclude what follows, and never while a page is written."""
        from dreamkeep.host import alone

        path = f"{self.root}/{_LOCK}"
        with ExitStack() as held:
            try:
                held.enter_context(alone(self._host, path, wait_s=_WAIT_S))
            except OSError as problem:
                raise from_os(problem, "recording statements", path) from problem
            yield

    def _tell(self, say: Callable[[str], Insight], *, keep: bool) -> tuple[Insight, Told]:
        """Journaled together with what follows from it; then the pages. `say`: given the time at which its turn has come."""
        from dreamkeep.dream import told

        say(rfc3339(self._host.now()))  # what is refused is refused before anything is touched
        self._take_in()
        with self._one_at_a_time():
            now = rfc3339(self._host.now())
            said = say(now)
            memory = self._memory("notes", "insights")
            if said.id in memory.insights:
                if memory.insights[said.id].run:
                    # A dream has heard it, too. What was told outright stands without that run.
                    self._journals().say("", Kind.INSIGHT_ADDED, said.as_json())
                return said, told.again(memory, said)
            said = told.as_newest(memory, said, now)
            done = told.concluded(memory, said, now, keep=keep, similar=self._similar)
            events = [(Kind.INSIGHT_ADDED, said.as_json()), *((one.kind, one.body) for one in done.decisions)]
            self._journals().append("", [Event(self._ids.new(), kind, now, body) for kind, body in events])
        dead = self._ask(lambda store: store.tombstones())
        for session in {one.session for one in said.evidence} & dead.keys():
            # Deleted meanwhile: what was said of it came after what the deletion took away.
            self._dreaming().forget(session)
        self._publish("")
        return said, done

    def note_change(self, note: str, act: str, *, text: str = "", reason: str = "", by: str = "user") -> dict[str, Any]:
        """`act`: edit, pin, unpin, retract, confirm, reject. To confirm one that was taken back, or expired, brings it back.

        `by`: "agent" may pin, unpin and retract. It takes back only what waits as a suggestion; of another note its history
        tells that an agent doubts it, and the note holds until the user retracts it."""
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        if by not in ("user", "agent") or (by == "agent" and act not in ("pin", "unpin", "retract")):
            raise BadUsage(f"{by!r} can't {act} a note", where="note", next="The user can: `dreamkeep note`.")
        why, text = redacted(reason) or f"by {'the user' if by == 'user' else 'an agent'}", redacted(" ".join(text.split()))
        if act == "edit":
            told.check_note(text, "note edit")
        self._take_in()
        with self._one_at_a_time() if self.exists() else nullcontext():
            id = self._note_changed(note, act, text, why) if by == "user" or act != "retract" else self._doubted(note, why)
        self._publish("")
        memory = self._memory("notes")
        return self._as_note(memory.notes[id], _newest(memory))

    def note_promote(self, note: str, file: str | os.PathLike[str]) -> dict[str, Any]:
        """An active note into a file of the user's own (CLAUDE.md, AGENTS.md …), as a list item at its end. The note stays active
        and is found as before; our pages leave it out, unless it is pinned. With `file`, `line`, and `added`: False where the
        file said it already."""
        from dreamkeep.dream.promote import line_of, put_into
        from dreamkeep.dream.publish import alone
        from dreamkeep.memory.note import ACTIVE

        path = os.path.abspath(os.path.expanduser(os.fspath(file)))
        self._take_in()
        found = self._note(self._memory("notes"), note)
        if found.state != ACTIVE:
            way = f"`dreamkeep note confirm {found.id}` makes it active."
            raise Refused(f"the note is {found.state}, so it can't be promoted", where=found.id, next=way)
        try:
            with alone(self._host, self.root):
                done = put_into(self._host, self.root, path, found.text)
        except OSError as problem:
            raise from_os(problem, "promoting a note", path) from problem
        # Written first: whoever dies in between finds the line there, and promotes it again.
        body = {**_itself(found), "file": done.path, "reason": f"added to {done.path} by the user"}
        self._journals().say("", Kind.NOTE_PROMOTED, body)
        self._publish("")
        memory = self._memory("notes")
        # Asked after our region in that file was written anew: lines before it may be gone.
        told = {"file": done.path, "line": line_of(self._host, done.path, found.text), "added": done.added}
        return {**self._as_note(memory.notes[found.id], _newest(memory)), **told}

    def _doubted(self, note: str, why: str) -> str:
        """An agent says that the note does not hold. It names a run, so that it is no hand on the note."""
        from dreamkeep.memory.note import SUGGESTED

        found = self._note(self._memory("notes"), note)
        kind = Kind.NOTE_RETRACTED if found.state == SUGGESTED else Kind.NOTE_DOUBTED
        self._journals().say("", kind, {"id": found.id, "reason": why, "run": _BY_AGENT})
        return found.id

    def _note_changed(self, note: str, act: str, text: str, why: str) -> str:
        """The note's whole id."""
        from dreamkeep.dream import told

        memory = self._memory("notes", "insights")
        found = self._note(memory, note)
        kinds = {"pin": Kind.NOTE_PINNED, "unpin": Kind.NOTE_UNPINNED, "retract": Kind.NOTE_RETRACTED, "edit": Kind.NOTE_EDITED}
        check_state(found, act)
        now = rfc3339(self._host.now())
        at = told.hand_at(memory, found, text or found.text, now, now)
        if act in kinds:
            body = {**_itself(found), "reason": why, **({"text": text, "was": found.text} if act == "edit" else {})}
            event = Event(self._ids.new(), kinds[act], at, body)
            self._journals().append("", self._with_what_follows(event, found.id) if act in ("edit", "unpin") else [event])
        elif act == "confirm":
            self._confirm(memory, found, why, at)
        elif act == "accept":
            self._accept_reworded(memory, found, text, why, at)
        elif act == "reject":
            bodies: list[tuple[str, dict[str, Any]]] = [
                (Kind.INSIGHT_REJECTED, {"id": one, "reason": why}) for one in found.insights
            ]
            # And the note itself: what it rests on may fall with a run that is undone, the user's word on it does not.
            bodies.append((Kind.NOTE_RETRACTED, {**_itself(found), "reason": why, "rejected": True}))
            events = [Event(self._ids.new(), kind, at, body) for kind, body in bodies]
            self._journals().append("", [*events, *self._without(found, events)])
        else:
            raise BadUsage(f"a note has no action {act!r}", where="note", next="edit, pin, unpin, retract, confirm or reject.")
        return found.id

    def _confirm(self, memory: Memory, found: Note, why: str, at: str) -> None:
        """What it rests on holds. One that has ended is said anew by the user, who names it: so it is active again, whatever
        becomes of the sessions that it came from, and what it contradicts is superseded."""
        from dreamkeep.dream import told
        from dreamkeep.memory.insight import CONFIRMED
        from dreamkeep.memory.note import ACTIVE

        said = None if found.state == ACTIVE else told.by_user(found.text, found.kind, found.project, at)
        *others, last = [*found.insights, *([said.id] if said else [])]
        bodies: list[tuple[str, dict[str, Any]]] = [(Kind.INSIGHT_ADDED, said.as_json())] if said else []
        bodies += [
            (Kind.INSIGHT_CONFIRMED, {"id": one, "reason": why}) for one in others if memory.insights[one].state != CONFIRMED
        ]
        about = {key: value for key, value in _itself(found).items() if key != "id"}
        bodies += [(Kind.INSIGHT_CONFIRMED, {**about, "id": last, "reason": why, "note": found.id})]
        events = [Event(self._ids.new(), kind, at, body) for kind, body in bodies]
        if said:
            memory = self._memory()
            for event in events:
                memory.apply(event)
            now = rfc3339(self._host.now())
            follows = told.concluded(memory, said, now, keep=False, similar=self._similar).decisions
            events += [Event(self._ids.new(), one.kind, at, one.body) for one in follows]
        self._journals().append("", events)

    def _accept_reworded(self, memory: Memory, found: Note, text: str, why: str, at: str) -> None:
        """A suggestion that the user accepts in other words: they are his own."""
        from dreamkeep.memory.insight import CONFIRMED

        *others, last = found.insights
        unsettled = [one for one in others if memory.insights[one].state != CONFIRMED]
        bodies: list[tuple[str, dict[str, Any]]] = [(Kind.INSIGHT_CONFIRMED, {"id": one, "reason": why}) for one in unsettled]
        bodies.append((Kind.INSIGHT_CONFIRMED, {**_itself(found), "id": last, "reason": why, "note": found.id}))
        accepted = [Event(self._ids.new(), kind, at, body) for kind, body in bodies]
        edited = Event(self._ids.new(), Kind.NOTE_EDITED, at, {**_itself(found), "text": text, "was": found.text, "reason": why})
        self._journals().append("", [*accepted, *self._with_what_follows(edited, found.id, accepted)])

    def _with_what_follows(self, event: Event, note: str, before: Sequence[Event] = ()) -> list[Event]:
        """What a user did to a note, and what it contradicts now: in one append, or a crash would leave a word from which nobody
        concludes anything. `before`: what is journaled with it, and comes first."""
        from dreamkeep.dream import told

        memory = self._memory()
        for one in (*before, event):
            memory.apply(one)
        conclude = told.edited if event.kind == Kind.NOTE_EDITED else told.unpinned
        follows = conclude(memory, note, rfc3339(self._host.now()), similar=self._similar)
        return [event, *(Event(self._ids.new(), one.kind, event.at, one.body) for one in follows)]

    def _without(self, found: Note, events: Sequence[Event]) -> list[Event]:
        """What it never held, it never overruled or closed: what follows, for the same append."""
        from dreamkeep.dream.undo import thought_over

        before, after = self._memory(), self._memory()
        for event in events:
            after.apply(event)
        said = [before.insights[one] for one in found.insights if one in before.insights]
        follows = thought_over(before, after, found.insights, said, rfc3339(self._host.now()), self._similar)
        return [Event(self._ids.new(), one.kind, events[-1].at, one.body) for one in follows]

    # -- tasks

    def tasks(self, *, project: str | None = None) -> list[dict[str, Any]]:
        """Pieces of work, newest first, with how many insights belong to each."""
        memory = self._memory("tasks", "insights")
        counts: dict[str, int] = {}
        for one in memory.insights.values():
            counts[one.task] = counts.get(one.task, 0) + 1
        found = [one for one in memory.tasks.values() if project in (None, one.project)]
        found.sort(key=lambda one: (one.opened_at or "", one.id), reverse=True)
        return [{**one.as_json(), "insights": counts.get(one.id, 0)} for one in found]

    def task_open(self, title: str, *, project: str = "") -> dict[str, Any]:
        from dreamkeep.dream.parts import redacted
        from dreamkeep.memory.insight import task_id

        words = redacted(" ".join(title.split()))
        if not words:
            raise BadUsage("the task has no title", where="task open", next="Give it a title.")
        id = task_id(self._ids.new())
        self._journals().say("", Kind.TASK_OPENED, {"id": id, "title": words, "project": project})
        return self.task_show(id)

    def task_close(self, task: str, *, state: str = "done") -> dict[str, Any]:
        from dreamkeep.memory.task import OPEN, STATES

        found = self.task_show(task)
        if state not in STATES or state == OPEN:
            ways = ", ".join(one for one in STATES if one != OPEN)
            raise BadUsage(f"a task can't be closed as {state!r}", where="--state", next=f"Use one of {ways}.")
        self._journals().say("", Kind.TASK_CLOSED, {**_task_itself(found), "state": state, "reason": "by the user"})
        return self.task_show(found["id"])

    def task_rename(self, task: str, title: str) -> dict[str, Any]:
        from dreamkeep.dream.parts import redacted

        found = self.task_show(task)
        words = redacted(" ".join(title.split()))
        if not words:
            raise BadUsage("the task has no title", where="task rename", next="Give it a title.")
        self._journals().say("", Kind.TASK_RENAMED, {**_task_itself(found), "title": words})
        return self.task_show(found["id"])

    def task_show(self, task: str) -> dict[str, Any]:
        """One task with its insights."""
        memory = self._memory("tasks", "insights")
        found = [one for one in memory.tasks if one == task] or [one for one in memory.tasks if task and one.startswith(task)]
        if len(found) != 1:
            what = "no task" if not found else f"{len(found)} tasks begin with"
            raise NotFound(f"{what} {task!r}", where="task", next="`dreamkeep tasks` lists them.")
        rests = [one.as_json() for one in memory.insights.values() if one.task == found[0]]
        return {**memory.tasks[found[0]].as_json(), "insights": rests}


def _newest(memory: Memory) -> str | None:
    return max((one.last_at for one in memory.notes.values() if one.last_at), default=None)


def _is_doubted(found: Note) -> bool:
    """An agent said that it does not hold, and the user has not confirmed it since."""
    from dreamkeep.memory.insight import CONFIRMED
    from dreamkeep.memory.note import ACTIVE, DOUBTED

    last = next((step.what for step in reversed(found.history) if step.what in (DOUBTED, CONFIRMED)), "")
    return found.state == ACTIVE and last == DOUBTED


def _itself(found: Note) -> dict[str, Any]:
    """With what it is: if it falls with a run that is undone, what the user did to it stays."""
    return {"id": found.id, "kind": found.kind, "project": found.project, "text": found.text}


def _task_itself(found: dict[str, Any]) -> dict[str, Any]:
    """The same of a task."""
    return {key: found[key] for key in ("id", "title", "project", "sessions", "opened_at")}


def check_state(found: Note, act: str) -> None:
    """What has ended is neither edited nor pinned: nobody would see it."""
    from dreamkeep.memory.note import ACTIVE, EXPIRED, REJECTED, RETRACTED, SUGGESTED, SUPERSEDED

    may_come_back = found.state in (SUGGESTED, RETRACTED, REJECTED, EXPIRED)
    if found.state == ACTIVE or act not in ("edit", "pin", "confirm") or (act == "confirm" and may_come_back):
        return
    by = f" by {found.by}" if found.by and found.state == SUPERSEDED else ""
    brings = "makes it active" if found.state == SUGGESTED else "brings it back"
    back = f"`dreamkeep note confirm {found.id}` {brings}." if may_come_back else "Say it again with `dreamkeep note add`."
    raise Refused(f"the note is {found.state}{by}, so it can't be {_DONE[act]}", where=found.id, next=back)


_DONE = {"edit": "edited", "pin": "pinned", "confirm": "confirmed"}


def _known(word: str | None, words: Sequence[str], name: str) -> None:
    if word is not None and word not in words:
        raise BadUsage(f"notes have no {name} {word!r}", where=f"--{name}", next=f"Use one of {', '.join(words)}.")
