"""Packs, what a fresh session should read first, asked for and rendered beforehand."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadUsage, DreamkeepError
from dreamkeep.event import rfc3339
from dreamkeep.verbs.recall.similarity import open_meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.note import Note
    from dreamkeep.recall.hits import Hit
    from dreamkeep.recall.pack import Pack, PackLine, PastSession
    from dreamkeep.recall.pack_files import PackFolder, WantedPack
    from dreamkeep.session.summary import Summary
    from dreamkeep.session.turns import TurnView

    #: A session and its last turns, as they look now.
    Stood = tuple[Summary, tuple[TurnView, ...]]

#: Packs are rendered for the projects of this many last sessions.
_SESSIONS = 2_000
_OF_ONE = 200
_PROJECTS = 50
#: How many sessions a pack mentions besides the last one, among how many they are looked for, and how many of their turns.
_BEFORE, _LOOKED_AT, _TURNS = 2, 12, 6
_LAST_MESSAGES = 400
#: At most so many matches of a query.
_MATCHES = {"note": 20, "insight": 8, "message": 6}
#: How many times more messages are looked at: most messages are tool output, which is not quoted.
_PER_QUOTE = 8
_LARGEST = 1_000_000
#: Packs of another version are rendered again.
_VERSION = "4"
_SUBAGENT = "subagent"


# -- asked for


def pack(
    context: KeepContext, query: str | None = None, project: str | None = None, task: str | None = None, budget: int | None = None
) -> dict[str, Any]:
    from dreamkeep.recall.pack import fit
    from dreamkeep.verbs.arguments import find_project

    limit = context.config["recall.budget"] if budget is None else budget
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LARGEST:
        raise BadUsage(f"a budget is a number from 1 to {_LARGEST}, not {limit!r}", where="--budget", next="Give tokens.")
    where = find_project(context, project if project is not None else ".")

    def lines(store: Store) -> list[PackLine]:
        memory, latest = _open_memory(store), _find_latest_in(context, store, where)
        matching = _find_matching(context, store, memory, where, query or "", task or "", _list_last_prompts(latest))
        return [*matching, *_list_standing(context, store, memory, where, latest)]

    made = fit(where, context.ask(lines), limit, partial(_mask_text, context))
    return {
        "text": made.text,
        "tokens": made.tokens,
        "sources": [dict(one) for one in made.sources],
        "project": where,
        "budget": limit,
        "left_out": made.left_out,
    }


def _mask_text(context: KeepContext, text: str) -> str:
    if not context.config["recall.redact"]:
        return text
    from dreamkeep.secrets.redact import redact

    return redact(text)[0]


def _list_standing(context: KeepContext, store: Store, memory: Memory, project: str, latest: Sequence[Stood]) -> list[PackLine]:
    """What belongs into every pack of a project: notes, and how the last sessions ended."""
    from dreamkeep.recall import pack

    return [*pack.note_lines(memory.active_notes(project)), *_list_past_lines(context, store, latest)]


def _find_latest_in(context: KeepContext, store: Store, project: str) -> list[Stood]:
    return _find_latest(context, store, store.sessions(project=project, limit=_OF_ONE)) if project else []


def _find_latest(context: KeepContext, store: Store, sessions: Iterable[Summary]) -> list[Stood]:
    """The last sessions by when somebody talked in them: ending or renaming a session does not make it newer."""
    from dreamkeep.session.turns import view_turn

    found: list[Stood] = [
        (one, tuple(view_turn(turn, context.is_alive) for turn in store.last_turns(one.id, _TURNS)))
        for one in _select_talked(sessions)[:_LOOKED_AT]
    ]
    return sorted(found, key=lambda stood: (_find_time(*stood), stood[0].id), reverse=True)[: 1 + _BEFORE]


def _list_past_lines(context: KeepContext, store: Store, latest: Sequence[Stood], section: int | None = None) -> list[PackLine]:
    from dreamkeep.recall import pack

    pasts = [_make_past(*stood) for stood in latest]
    last = _add_ending(context, store, latest[0][0], pasts[0]) if pasts else None
    return pack.past_lines(last, pasts[1:], partial(_mask_text, context), pack.LAST if section is None else section)


def _add_ending(context: KeepContext, store: Store, summary: Summary, past: PastSession) -> PastSession:
    """Add what was said and done last, from the session's digest."""
    from dreamkeep.session.reading.digest import find_ending

    ending = find_ending(store.last_messages(summary.id, _LAST_MESSAGES), summary.cwd)
    return past._replace(
        prompts=ending.prompts[-_TURNS:] or past.prompts,
        answers=ending.answers[-_TURNS:],
        failed=ending.failed,
        files=ending.files,
    )


# -- what matches


def _find_matching(
    context: KeepContext,
    store: Store,
    memory: Memory,
    project: str,
    query: str,
    task: str,
    asked_last: Collection[tuple[str, str | None]],
) -> list[PackLine]:
    """`asked_last`: turns whose prompts are in the pack anyway. One of them may be what the calling agent was just asked."""
    from dreamkeep.recall import pack

    words, notes = " ".join(query.split()), memory.notes
    lines: list[PackLine] = []
    if task:
        known = [one for one in memory.tasks if one == task] or [one for one in memory.tasks if one.startswith(task)]
        if len(known) == 1:
            learned = {one.id for one in memory.insights.values() if one.task == known[0]}
            active = memory.active_notes(memory.tasks[known[0]].project or project)
            lines += pack.note_lines((one for one in active if not learned.isdisjoint(one.insights)), pack.TASK)
        words = f"{words} {memory.tasks[known[0]].title if len(known) == 1 else task}".strip()
    if not words:
        return lines
    shown = {one.id: one for one in memory.active_notes(project)}
    covered = {id for one in shown.values() for id in one.insights}
    found = [
        one
        for one in _search_matches(context, store, words, project, asked_last)
        if one.kind != "insight" or one.id not in covered
    ]
    return [*lines, *pack.hit_lines(found, words, {id: notes[id] for id in shown}, partial(_mask_text, context))]


def _search_matches(
    context: KeepContext, store: Store, words: str, project: str, asked_last: Collection[tuple[str, str | None]]
) -> list[Hit]:
    """What `search` finds in this project. Age is measured from the newest record, not from the clock, so that the same keep
    always gives the same pack."""
    from dreamkeep.index.searching import Within
    from dreamkeep.recall.pack import is_own_words
    from dreamkeep.recall.query import read_query
    from dreamkeep.recall.search import Search
    from dreamkeep.session.messages import USER

    def quotable(one: Hit) -> bool:
        return is_own_words(one.role, one.mark) and not (one.role == USER and (one.session, one.turn) in asked_last)

    newest = max((one.last_at or "" for one in store.sessions(limit=1)), default="")
    asked = read_query(words, rfc3339(context.host.now()))
    search = Search(store, asked, Within(project), newest or rfc3339(0), open_meaning(context, store))
    found: list[Hit] = []
    for kind, limit in _MATCHES.items():
        looked = search.run((kind,), limit * (_PER_QUOTE if kind == "message" else 1))
        held = [one for one in looked if not one.superseded_by and (quotable(one) if kind == "message" else not one.mark)]
        found += held[:limit]
    return [_without_packs(hit) for hit in search.read_texts(found)]


# -- beforehand


def render_packs(context: KeepContext, squeezed: Sequence[str] = ()) -> None:
    from dreamkeep.recall import pack_files

    try:
        if not context.exists() or not pack_files.has_readers(context.host, context.root):
            return
        # Before the lock: it may take seconds, and adding a note must not wait for it.
        said = {session: _find_said(context, session) for session in squeezed}
        with pack_files.lock_packs(context.host, context.root):
            context.ask(lambda store: _render_all(context, store, pack_files.PackFolder(context.host, context.root), said))
    except (DreamkeepError, OSError) as problem:
        context.warn(f"The packs for agents can't be written now; the next drain or dream writes them: {problem}")


def forget_packs(context: KeepContext) -> None:
    """Remove all packs, because they may have words of a deleted session, and render them again."""
    from dreamkeep.recall import pack_files

    if context.host.stat(f"{context.root}/{pack_files.FOLDER}") is None:
        return
    with pack_files.lock_packs(context.host, context.root):
        pack_files.PackFolder(context.host, context.root).clear()
    render_packs(context)


def _find_said(context: KeepContext, session: str) -> list[Note]:
    """What a dream would note of a session so far. Writes nothing."""
    from dreamkeep.dream import unfinished
    from dreamkeep.dream.assemble import RULES, assemble

    def own(store: Store) -> list[Note]:
        summary = store.session(session)
        if summary is None:
            return []
        parts = assemble(RULES, context.config, context.host, context.environment, context.root)
        now = summary.last_at or rfc3339(context.host.now())
        said = (store.turns(session), store.messages(session))
        return unfinished.notes_of(summary, *said, _open_memory(store), parts, now)

    return context.ask(own)


def _render_all(context: KeepContext, store: Store, folder: PackFolder, squeezed: Mapping[str, Sequence[Note]]) -> None:
    from dreamkeep.recall.pack import fit
    from dreamkeep.session.summary import ENDED

    memory = _open_memory(store)
    budget = context.config["recall.budget"]
    sessions = store.sessions(limit=_SESSIONS)
    folder.update(
        _list_wanted(context, store, memory, sessions),
        lambda project: (
            fit(
                project,
                _list_standing(context, store, memory, project, _find_latest_in(context, store, project)),
                budget,
                partial(_mask_text, context),
            ).text
        ),
    )
    states = {one.id: one.state for one in sessions}
    folder.remove_session_packs(lambda session: states.get(session, ENDED) == ENDED)
    for session, said in squeezed.items():
        folder.write_session_pack(session, _make_after_pack(context, store, memory, session, said).text)


def _make_after_pack(context: KeepContext, store: Store, memory: Memory, session: str, said: Sequence[Note]) -> Pack:
    """The pack for a session whose context was compacted: its own notes first, then what every session of the project gets.

    A note that also rests on other sessions may have been deleted since `said` was found. So it is taken as it is now, under
    the lock that a deletion takes."""
    from dreamkeep.memory.note import ACTIVE
    from dreamkeep.recall import pack

    summary = store.session(session)
    if summary is None:
        return pack.Pack("", 0, (), 0)
    now = [one if one.evidence and {q.session for q in one.evidence} == {session} else memory.notes.get(one.id) for one in said]
    own = [one for one in now if one is not None and one.state == ACTIVE]
    lines = [
        *pack.compacted_lines(own, memory.notes),
        *pack.note_lines(memory.active_notes(summary.project)),
        *_list_past_lines(context, store, _find_latest(context, store, [summary]), pack.HERE),
    ]
    return pack.fit(summary.project, lines, context.config["recall.budget"], partial(_mask_text, context))


def _list_wanted(context: KeepContext, store: Store, memory: Memory, sessions: Iterable[Summary]) -> list[WantedPack]:
    from dreamkeep.recall.pack_files import EVERYWHERE, WantedPack

    by_project: dict[str, list[Summary]] = {}
    for one in sessions:
        by_project.setdefault(one.project, []).append(one)
    by_project.pop("", None)
    wanted = [WantedPack("", ((EVERYWHERE, True),), _make_mark(context, memory, "", ()))]
    for project in list(by_project)[:_PROJECTS]:
        latest = _find_latest(context, store, by_project[project])
        folders = _list_folders(context, project, (one.cwd for one in by_project[project]), memory.current_project)
        wanted.append(WantedPack(project, folders, _make_mark(context, memory, project, latest)))
    return wanted


def _make_mark(context: KeepContext, memory: Memory, project: str, latest: Sequence[Stood]) -> str:
    """A digest of what a pack is made from: while it stays the same, the pack does."""
    from dreamkeep.memory.insight import digest

    shown = memory.active_notes(project)
    notes = sorted((one.id, one.text, one.pinned, one.last_at, one.sessions, one.author, one.confidence) for one in shown)
    of = (_VERSION, context.config["recall.budget"], context.config["recall.redact"], latest, notes)
    return digest(repr(of))[:24]


def _list_folders(
    context: KeepContext, project: str, folders: Iterable[str], called: Callable[[str], str]
) -> tuple[tuple[str, bool], ...]:
    """The folders in which sessions of the project start: its repository with all below it, or else the folders themselves.
    A folder that now belongs to another project is left out."""
    from dreamkeep.capture.projects.project import project_of, repository_of

    found: dict[str, bool] = {}
    for folder in dict.fromkeys(folders):
        try:
            if folder and called(project_of(context.host, folder, os.uname().nodename)) == project:
                root = repository_of(context.host, folder)
                found[root or folder] = root is not None
        except (OSError, ValueError):
            continue  # not a folder of this machine, or we may not look at it: no session starts there
    return tuple(sorted(found.items()))


def _find_time(summary: Summary, turns: tuple[TurnView, ...]) -> str:
    times = [turns[-1].submitted_at or "", turns[-1].settled_at or ""] if turns else []
    return max(times, default="") or summary.last_at or ""


def _list_last_prompts(latest: Sequence[Stood]) -> set[tuple[str, str | None]]:
    """The turns whose prompts are told of the last sessions (`pack.past_lines`)."""
    from dreamkeep.session.turns import INTERRUPTED

    shown = [
        (summary, turns[-1]) for n, (summary, turns) in enumerate(latest) if turns and (n == 0 or turns[-1].state == INTERRUPTED)
    ]
    return {(summary.id, turn.id) for summary, turn in shown}


def _make_past(summary: Summary, turns: tuple[TurnView, ...]) -> PastSession:
    from dreamkeep.recall.pack import PastSession
    from dreamkeep.session.reading.origin import typed_words
    from dreamkeep.session.reading.packs import holds_pack, without_packs

    title = "" if holds_pack(summary.title) else summary.title
    past = PastSession(summary.id, summary.agent, title, _find_time(summary, turns) or None)
    if not turns:
        return past
    return past._replace(prompts=tuple(typed_words(without_packs(turn.prompt)) for turn in turns), turn=turns[-1].state)


def _without_packs(hit: Hit) -> Hit:
    from dreamkeep.session.messages import USER
    from dreamkeep.session.reading.origin import typed_words
    from dreamkeep.session.reading.packs import without_packs

    said = without_packs(hit.text)
    return hit._replace(text=typed_words(said) if hit.role == USER else said)


def _open_memory(store: Store) -> Memory:
    """The memory; only what is asked of it is read."""
    from dreamkeep.memory.memory import Memory

    return Memory.on_demand(store.memory_row, store.memory_table)


def _select_talked(sessions: Iterable[Summary]) -> list[Summary]:
    """The sessions in which a user said something. A subagent's session belongs to another one."""
    return [one for one in sessions if one.turns and not any(kind == _SUBAGENT for kind, _ in one.lineage)]
