"""Notes and insights: list, add, change and explain them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.errors import BadUsage, NotFound, Refused, from_os
from dreamkeep.event import Event, Kind, rfc3339
from dreamkeep.verbs.arguments import resolve_session
from dreamkeep.verbs.dream.dreams import open_dreaming
from dreamkeep.verbs.dream.pages import publish_pages, take_in_edits
from dreamkeep.verbs.memory.tasks import task_show

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.dream.consolidate.statements import Ground, StatedFacts
    from dreamkeep.memory.insight import Insight
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.note import Note

T = TypeVar("T")
_LOCK = "state/told.lock"
_BY_AGENT = "agent"
_WAIT_S = 30.0
#: If no session is named, the user's words are looked for in this many of the last ones.
_LAST_SESSIONS = 10


def notes(
    context: KeepContext, *, kind: str | None = None, state: str | None = "active", project: str | None = None
) -> list[dict[str, Any]]:
    from dreamkeep.memory.insight import TYPES
    from dreamkeep.memory.note import STATES

    state = None if state == "all" else state
    _check_word(kind, TYPES, "kind")
    _check_word(state, (*STATES, "all"), "state")
    memory = context.load_memory("notes")
    newest = _find_newest(memory)
    found = [
        _show_note(one, newest)
        for one in memory.notes.values()
        if kind in (None, one.kind) and state in (None, one.state) and project in (None, one.project)
    ]
    return sorted(found, key=lambda one: (not one["pinned"], -one["score"], one["id"]))


def dream_why(context: KeepContext, note: str) -> dict[str, Any]:
    memory = context.load_memory("notes", "insights")
    found = find_note(memory, note)
    shown = _show_note(found, _find_newest(memory))
    rests = [memory.insights[one].as_json() for one in found.insights if one in memory.insights]
    add_authors(context, [quote for one in (shown, *rests) for quote in one["evidence"]])
    return {
        "note": shown,
        "insights": rests,
        "history": [step._asdict() for step in found.history],
    }


def add_authors(context: KeepContext, evidence: Sequence[dict[str, Any]]) -> None:
    """Add the author to quotes that an older version journaled without one, if the message is still there. The origin of the
    words stays open."""
    from dreamkeep.dream.backends.checks import author_at

    nameless = [quote for quote in evidence if not quote.get("author") and quote["quote"]]
    sessions = {str(quote["session"]) for quote in nameless}
    said = context.ask(lambda store: {one: store.messages(one) for one in sessions}) if sessions else {}
    for quote in nameless:
        if author := author_at(said[quote["session"]], quote["seq"], quote["quote"]):
            quote["author"] = author


def note_add(context: KeepContext, text: str, *, kind: str = "preference", project: str = "") -> dict[str, Any]:
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.dream.consolidate import statements

    words = redacted(" ".join(text.split()))
    return _add_note(context, lambda now: statements.user_insight(words, kind, project, now))


def note_suggest(
    context: KeepContext,
    text: str,
    *,
    kind: str = "preference",
    project: str = "",
    session: str | None = None,
    quote: str | None = None,
) -> dict[str, Any]:
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.dream.consolidate import statements
    from dreamkeep.memory.insight import AGENT, TYPED, USER

    words = redacted(" ".join(text.split()))
    statements.check_note(words, "text")
    if quote:
        where = _find_ground(context, session, quote) if session else _find_recent_ground(context, project, quote)
    else:
        where = _find_ground(context, session, "") if session else statements.Ground(project)
    where = where._replace(project=project)
    typed = where.quote is not None and (where.quote.author, where.quote.origin) == (USER, TYPED) and not where.among_agents
    author = USER if typed else AGENT
    return _add_note(
        context, lambda now: statements.agent_insight(kind, words, where, now=now, author=author, longest=statements.LONGEST_NOTE)
    )


def _add_note(context: KeepContext, say: Callable[[str], Insight]) -> dict[str, Any]:
    from dreamkeep.dream.consolidate import statements

    said, done = _record_insight(context, say, keep=True)
    memory = context.load_memory("notes")
    if not done.note:
        raise Refused(
            "the user has already rejected this note",
            where=said.text[:80],
            next="Only the user can bring it back; `dreamkeep notes --state rejected` lists it.",
        )
    return {**_show_note(memory.notes[done.note], _find_newest(memory)), "changed": statements.as_json(done)}


def _find_recent_ground(context: KeepContext, project: str, quote: str) -> Ground:
    """Where the user typed the quote: in one of the project's last sessions, newest first."""
    from dreamkeep.memory.insight import USER

    for one in context.ask(lambda store: store.sessions(project=project or None, limit=_LAST_SESSIONS)):
        try:
            found = _find_ground(context, one.id, quote)
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
    context: KeepContext,
    type: str,
    text: str,
    *,
    session: str | None = None,
    quote: str | None = None,
    task: str | None = None,
    project: str | None = None,
    author: str = "agent",
) -> dict[str, Any]:
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.dream.consolidate import statements

    words = redacted(" ".join(text.split()))
    if quote and not session:
        raise BadUsage("a quote needs a session", where="quote", next="Name the session, or leave the quote out.")
    where = _find_ground(context, session, quote or "") if session else statements.Ground(project or "")
    if task:
        where = where._replace(task=task_show(context, task)["id"])

    def state(now: str) -> Insight:
        return statements.agent_insight(type, words, where, now=now, author=author)

    said, done = _record_insight(context, state, keep=False)
    memory = context.load_memory("notes", "insights")
    note = memory.notes.get(done.note)
    return {
        "insight": memory.insights.get(said.id, said).as_json(),
        "note": _show_note(note, _find_newest(memory)) if note else None,
        "changed": statements.as_json(done),
    }


def _find_ground(context: KeepContext, session: str, quote: str) -> Ground:
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.dream.consolidate import statements

    id = resolve_session(context, session)
    summary, messages = context.ask(lambda store: (store.session(id), store.messages(id)))
    if summary is None:
        raise NotFound(f"no session {id!r}", where="session", next="`dreamkeep sessions` lists them.")
    return statements.find_ground(summary, messages, quote, redacted)


@contextmanager
def hold_turn(context: KeepContext) -> Iterator[None]:
    """Lets one statement at a time be recorded, so that each is compared with all earlier ones. Two at once would both hold,
    even if they contradict each other. Held until the consequences are recorded, and never while a page is written."""
    from dreamkeep.host import exclusive_lock

    path = f"{context.root}/{_LOCK}"
    with ExitStack() as held:
        try:
            held.enter_context(exclusive_lock(context.host, path, wait_s=_WAIT_S))
        except OSError as problem:
            raise from_os(problem, "recording statements", path) from problem
        yield


def _record_insight(context: KeepContext, say: Callable[[str], Insight], *, keep: bool) -> tuple[Insight, StatedFacts]:
    """Journal an insight together with its consequences, then publish the pages. `say` makes it, given the time of its turn."""
    from dreamkeep.dream.consolidate import statements

    say(rfc3339(context.host.now()))  # refuse what must be refused before anything is touched
    take_in_edits(context)
    with hold_turn(context):
        now = rfc3339(context.host.now())
        said = say(now)
        memory = context.load_memory("notes", "insights")
        if said.id in memory.insights:
            if memory.insights[said.id].run:
                # A dream has found it, too. As a statement it stays even if that run is undone.
                context.journals().say("", Kind.INSIGHT_ADDED, said.as_json())
            return said, statements.find_repeated(memory, said)
        said = statements.date_as_newest(memory, said, now)
        done = statements.conclude(memory, said, now, keep=keep)
        events = [(Kind.INSIGHT_ADDED, said.as_json()), *((one.kind, one.body) for one in done.decisions)]
        context.journals().append("", [Event(context.ids.new(), kind, now, body) for kind, body in events])
    dead = context.ask(lambda store: store.tombstones())
    for session in {one.session for one in said.evidence} & dead.keys():
        # Deleted meanwhile: this statement about it was recorded after the deletion removed the others.
        open_dreaming(context).forget(session)
    publish_pages(context, "")
    return said, done


def note_change(
    context: KeepContext, note: str, act: str, *, text: str = "", reason: str = "", by: str = "user"
) -> dict[str, Any]:
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.dream.consolidate import statements

    if by not in ("user", "agent") or (by == "agent" and act not in ("pin", "unpin", "retract")):
        raise BadUsage(f"{by!r} can't {act} a note", where="note", next="The user can: `dreamkeep note`.")
    why, text = redacted(reason) or f"by {'the user' if by == 'user' else 'an agent'}", redacted(" ".join(text.split()))
    if act == "edit":
        statements.check_note(text, "note edit")
    take_in_edits(context)
    with hold_turn(context) if context.exists() else nullcontext():
        id = change_note(context, note, act, text, why) if by == "user" or act != "retract" else _doubt_note(context, note, why)
    publish_pages(context, "")
    memory = context.load_memory("notes")
    return _show_note(memory.notes[id], _find_newest(memory))


def note_promote(context: KeepContext, note: str, file: str | os.PathLike[str]) -> dict[str, Any]:
    from dreamkeep.dream.pages.promote import line_of, put_into
    from dreamkeep.dream.pages.publish import lock_pages
    from dreamkeep.memory.note import ACTIVE

    path = os.path.abspath(os.path.expanduser(os.fspath(file)))
    take_in_edits(context)
    found = find_note(context.load_memory("notes"), note)
    if found.state != ACTIVE:
        way = f"`dreamkeep note confirm {found.id}` makes it active."
        raise Refused(f"the note is {found.state}, so it can't be promoted", where=found.id, next=way)
    try:
        with lock_pages(context.host, context.root):
            done = put_into(context.host, context.root, path, found.text)
    except OSError as problem:
        raise from_os(problem, "promoting a note", path) from problem
    # The file is written first: after a crash in between the line is found there, and promoting again only journals it.
    body = {**_describe_note(found), "file": done.path, "reason": f"added to {done.path} by the user"}
    context.journals().say("", Kind.NOTE_PROMOTED, body)
    publish_pages(context, "")
    memory = context.load_memory("notes")
    # Look up the line last: publishing may have removed lines before it from our region of that file.
    place = {"file": done.path, "line": line_of(context.host, done.path, found.text), "added": done.added}
    return {**_show_note(memory.notes[found.id], _find_newest(memory)), **place}


def _doubt_note(context: KeepContext, note: str, why: str) -> str:
    """Record that an agent says the note is wrong. The event names a run, so that it doesn't count as the user's decision."""
    from dreamkeep.memory.note import SUGGESTED

    found = find_note(context.load_memory("notes"), note)
    kind = Kind.NOTE_RETRACTED if found.state == SUGGESTED else Kind.NOTE_DOUBTED
    context.journals().say("", kind, {"id": found.id, "reason": why, "run": _BY_AGENT})
    return found.id


def change_note(context: KeepContext, note: str, act: str, text: str, why: str) -> str:
    """Apply one change. Returns the note's full id."""
    from dreamkeep.dream.consolidate import statements

    memory = context.load_memory("notes", "insights")
    found = find_note(memory, note)
    kinds = {"pin": Kind.NOTE_PINNED, "unpin": Kind.NOTE_UNPINNED, "retract": Kind.NOTE_RETRACTED, "edit": Kind.NOTE_EDITED}
    check_state(found, act)
    now = rfc3339(context.host.now())
    at = statements.date_edit(memory, found, text or found.text, now, now)
    if act in kinds:
        body = {**_describe_note(found), "reason": why, **({"text": text, "was": found.text} if act == "edit" else {})}
        event = Event(context.ids.new(), kinds[act], at, body)
        context.journals().append("", _add_consequences(context, event, found.id) if act in ("edit", "unpin") else [event])
    elif act == "confirm":
        _confirm_note(context, memory, found, why, at)
    elif act == "accept":
        _accept_reworded(context, memory, found, text, why, at)
    elif act == "reject":
        bodies: list[tuple[str, dict[str, Any]]] = [(Kind.INSIGHT_REJECTED, {"id": one, "reason": why}) for one in found.insights]
        # And the note itself: what it rests on may fall with a run that is undone, the user's word on it does not.
        bodies.append((Kind.NOTE_RETRACTED, {**_describe_note(found), "reason": why, "rejected": True}))
        events = [Event(context.ids.new(), kind, at, body) for kind, body in bodies]
        context.journals().append("", [*events, *_find_consequences(context, found, events)])
    else:
        raise BadUsage(f"a note has no action {act!r}", where="note", next="edit, pin, unpin, retract, confirm or reject.")
    return found.id


def _confirm_note(context: KeepContext, memory: Memory, found: Note, why: str, at: str) -> None:
    """Confirm the insights that the note rests on. A note that has ended is also stated again by the user: so it is active,
    whatever becomes of the sessions that it came from, and notes that contradict it are superseded."""
    from dreamkeep.dream.consolidate import statements
    from dreamkeep.memory.insight import CONFIRMED
    from dreamkeep.memory.note import ACTIVE

    said = None if found.state == ACTIVE else statements.user_insight(found.text, found.kind, found.project, at)
    *others, last = [*found.insights, *([said.id] if said else [])]
    bodies: list[tuple[str, dict[str, Any]]] = [(Kind.INSIGHT_ADDED, said.as_json())] if said else []
    bodies += [(Kind.INSIGHT_CONFIRMED, {"id": one, "reason": why}) for one in others if memory.insights[one].state != CONFIRMED]
    about = {key: value for key, value in _describe_note(found).items() if key != "id"}
    bodies += [(Kind.INSIGHT_CONFIRMED, {**about, "id": last, "reason": why, "note": found.id})]
    events = [Event(context.ids.new(), kind, at, body) for kind, body in bodies]
    if said:
        memory = context.load_memory()
        for event in events:
            memory.apply(event)
        now = rfc3339(context.host.now())
        follows = statements.conclude(memory, said, now, keep=False).decisions
        events += [Event(context.ids.new(), one.kind, at, one.body) for one in follows]
    context.journals().append("", events)


def _accept_reworded(context: KeepContext, memory: Memory, found: Note, text: str, why: str, at: str) -> None:
    """Accept a suggestion in the user's own words."""
    from dreamkeep.memory.insight import CONFIRMED

    *others, last = found.insights
    unsettled = [one for one in others if memory.insights[one].state != CONFIRMED]
    bodies: list[tuple[str, dict[str, Any]]] = [(Kind.INSIGHT_CONFIRMED, {"id": one, "reason": why}) for one in unsettled]
    bodies.append((Kind.INSIGHT_CONFIRMED, {**_describe_note(found), "id": last, "reason": why, "note": found.id}))
    accepted = [Event(context.ids.new(), kind, at, body) for kind, body in bodies]
    edited = Event(
        context.ids.new(), Kind.NOTE_EDITED, at, {**_describe_note(found), "text": text, "was": found.text, "reason": why}
    )
    context.journals().append("", [*accepted, *_add_consequences(context, edited, found.id, accepted)])


def _add_consequences(context: KeepContext, event: Event, note: str, before: Sequence[Event] = ()) -> list[Event]:
    """The event with its consequences for other notes, for one append: a crash between two appends would leave a change
    without consequences. `before`: events that are journaled with it, before it."""
    from dreamkeep.dream.consolidate import statements

    memory = context.load_memory()
    for one in (*before, event):
        memory.apply(one)
    conclude = statements.conclude_edit if event.kind == Kind.NOTE_EDITED else statements.conclude_unpin
    follows = conclude(memory, note, rfc3339(context.host.now()))
    return [event, *(Event(context.ids.new(), one.kind, event.at, one.body) for one in follows)]


def _find_consequences(context: KeepContext, found: Note, events: Sequence[Event]) -> list[Event]:
    """What follows from rejecting a note, for the same append: what it overruled or closed holds again."""
    from dreamkeep.dream.undo import thought_over

    before, after = context.load_memory(), context.load_memory()
    for event in events:
        after.apply(event)
    said = [before.insights[one] for one in found.insights if one in before.insights]
    follows = thought_over(before, after, found.insights, said, rfc3339(context.host.now()))
    return [Event(context.ids.new(), one.kind, events[-1].at, one.body) for one in follows]


def count_notes(context: KeepContext) -> dict[str, int]:
    """How many notes are active, how many are suggested, and how many an agent doubts."""
    from dreamkeep.memory.note import ACTIVE, DOUBTED, SUGGESTED

    notes = list(context.load_memory("notes").notes.values()) if context.exists() else []
    states = [one.state for one in notes]
    return {ACTIVE: states.count(ACTIVE), SUGGESTED: states.count(SUGGESTED), DOUBTED: sum(map(_is_doubted, notes))}


def find_note(memory: Memory, text: str) -> Note:
    """A note by its id or a unique prefix."""
    found = [one for one in memory.notes.values() if one.id == text] or [
        one for one in memory.notes.values() if text and (one.id.startswith(text) or one.id.startswith(f"n-{text}"))
    ]
    if len(found) != 1:
        what = "no note" if not found else f"{len(found)} notes begin with"
        raise NotFound(f"{what} {text!r}", where="note", next="`dreamkeep notes` lists them.")
    return found[0]


def _show_note(note: Note, newest: str | None) -> dict[str, Any]:
    from dreamkeep.memory.score import score

    shown = note.as_json()
    del shown["history"]
    return {**shown, "score": round(score(note, newest), 4), **({"doubted": True} if _is_doubted(note) else {})}


def _find_newest(memory: Memory) -> str | None:
    return max((one.last_at for one in memory.notes.values() if one.last_at), default=None)


def _is_doubted(found: Note) -> bool:
    """Whether an agent said that it is wrong, and the user has not confirmed it since."""
    from dreamkeep.memory.insight import CONFIRMED
    from dreamkeep.memory.note import ACTIVE, DOUBTED

    last = next((step.what for step in reversed(found.history) if step.what in (DOUBTED, CONFIRMED)), "")
    return found.state == ACTIVE and last == DOUBTED


def _describe_note(found: Note) -> dict[str, Any]:
    """The note with its content: if the run that made it is undone, the user's change to it stays."""
    return {"id": found.id, "kind": found.kind, "project": found.project, "text": found.text}


def check_state(found: Note, act: str) -> None:
    """Refuse to edit or pin a note that has ended: nobody would see it."""
    from dreamkeep.memory.note import ACTIVE, EXPIRED, REJECTED, RETRACTED, SUGGESTED, SUPERSEDED

    may_come_back = found.state in (SUGGESTED, RETRACTED, REJECTED, EXPIRED)
    if found.state == ACTIVE or act not in ("edit", "pin", "confirm") or (act == "confirm" and may_come_back):
        return
    by = f" by {found.by}" if found.by and found.state == SUPERSEDED else ""
    brings = "makes it active" if found.state == SUGGESTED else "brings it back"
    back = f"`dreamkeep note confirm {found.id}` {brings}." if may_come_back else "Say it again with `dreamkeep note add`."
    raise Refused(f"the note is {found.state}{by}, so it can't be {_DONE[act]}", where=found.id, next=back)


_DONE = {"edit": "edited", "pin": "pinned", "confirm": "confirmed"}


def _check_word(word: str | None, words: Sequence[str], name: str) -> None:
    if word is not None and word not in words:
        raise BadUsage(f"notes have no {name} {word!r}", where=f"--{name}", next=f"Use one of {', '.join(words)}.")
