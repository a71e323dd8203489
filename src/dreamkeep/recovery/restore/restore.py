"""`restore SESSION --to AGENT`: write a session back for an agent, so that the agent's own resume continues it.

    a session of that agent    every file byte for byte (exact.py), also its subagents'; for Hermes its rows
    any other session          converted from the folded messages (the agent's writer.py), with a list of what was lost

Everything is checked before anything is written: after one refusal nothing is touched. After a crash each file is either as it
was before or complete. Running it again finishes the rest: files that are there already count as done.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from dreamkeep.agents import registry
from dreamkeep.agents.contract import LINES_ZST, SESSION, SHARED
from dreamkeep.agents.shared.talk import INDEX, MARKER, RestoredFile, TalkWriter
from dreamkeep.capture.sources.content import Unpacked
from dreamkeep.errors import BadUsage, NotFound, Unsupported
from dreamkeep.host import Host, read_file
from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery.faults import counted
from dreamkeep.recovery.restore import convert, exact, put
from dreamkeep.recovery.restore.places import Home, other_home
from dreamkeep.recovery.stores import RowStore, Tables, row_store
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")
_ZST = ".zst"
_MASKED = "secrets in it were masked at capture (capture.redact_raw): it has the same length, but not the same bytes."


class StoredSession(NamedTuple):
    """What the index knows of a session and of its subagents' sessions."""

    summary: Summary
    #: Called only for a conversion: copying bytes doesn't need the messages in memory.
    messages: Callable[[], list[Message]]
    about: Mapping[str, Any]
    subagents: list[Summary]


class RestoreRequest(NamedTuple):
    """`cwd`: the folder in which a converted session continues, if not its own."""

    to: str
    home: Home
    generation: int | None = None
    convert: bool = False
    cwd: str = ""
    dry_run: bool = False


class _Rows(NamedTuple):
    path: str
    rows: Tables
    store: RowStore
    exact: bool
    damaged: bool = False
    masked: bool = False


class _RestorePlan(NamedTuple):
    native: str
    cwd: str
    files: list[RestoredFile]
    rows: list[_Rows]
    lost: Counter[str]
    notes: list[str]
    exact: bool
    #: The home folder that the files are in, where the agent does not look by itself; "" when it does.
    home: str


def load_session(store: Store, session: str, messages: Callable[[], list[Message]]) -> StoredSession:
    with store.reading():
        summary = store.session(session)
        assert summary is not None, "the caller has resolved the id"
        about = json.loads(store.state(session))
        return StoredSession(summary, messages, about, _subagents(summary, store.sessions(agent=summary.agent)))


def _subagents(summary: Summary, sessions: list[Summary]) -> list[Summary]:
    """All subagents below the session, once each, even if the edges form a cycle."""
    found: dict[str, Summary] = {summary.id: summary}
    todo = [summary.id]
    for parent in todo:
        for session in sessions:
            if session.id not in found and ("subagent", parent) in session.lineage:
                found[session.id] = session
                todo.append(session.id)
    return list(found.values())[1:]


def restore(host: Host, root: str, session: StoredSession, request: RestoreRequest) -> dict[str, Any]:
    """What was done (with `dry_run`: what would be done), as the contract's JSON."""
    if registry.find(request.to) is None:
        known = ", ".join(registry.names())
        raise BadUsage(f"no agent `{request.to}` keeps sessions on disk", where="--to", next=f"Known agents: {known}.")
    plan = _plan(host, root, session, request)
    if plan.cwd and not _is_here(host, plan.cwd):
        plan.notes.append(f"{plan.cwd} is not on this machine; name the folder to continue in with --cwd.")
    _check_plan(host, plan)
    files = [_put_file(host, root, file, request.dry_run) for file in plan.files]
    for rows in plan.rows:
        with _translated(rows.path):
            done = rows.store.put_rows(host, rows.path, rows.rows, dry_run=request.dry_run)
        plan.lost.update(done.lost)
        is_exact = rows.exact and not +done.lost
        about = {name: True for name in ("damaged", "masked") if getattr(rows, name)}
        files.append(
            {"path": rows.path, "bytes": done.size, "exact": is_exact, "action": done.action, "rows": done.added, **about}
        )
    return {
        "session": session.summary.id,
        "to": request.to,
        "native_id": plan.native,
        "exact": plan.exact and all(file["exact"] for file in files if file.get("role") not in (MARKER, INDEX)),
        "dry_run": request.dry_run,
        "files": files,
        "lost": [{"what": what, "count": count} for what, count in sorted((+plan.lost).items(), key=lambda pair: -pair[1])],
        "notes": plan.notes,
        "cwd": plan.cwd,
        "resume": _resume_command(plan, request),
    }


def _plan(host: Host, root: str, session: StoredSession, request: RestoreRequest) -> _RestorePlan:
    notes: list[str] = []
    summary = session.summary
    if summary.agent == request.to and not request.convert:
        plan = _plan_exact(host, root, session, request)
        if plan is not None:
            return plan
    lost = exact.count_lost_events(host, f"{root}/{folder_of(summary.id)}")
    if summary.agent == request.to and not request.convert:
        # In a journal with holes there may be lines of a file, and nothing that says of which.
        why = f"The journal has none of {request.to}'s own files or rows, only what was said"
        if lost:
            why = f"What is left of its journal can't rebuild any of {request.to}'s own files or rows"
        notes.append(f"{why}: converted, as a new session.")
    writer = registry.writer(request.to)
    if writer is None:
        known = ", ".join(list_targets())
        raise Unsupported(f"sessions can't be converted for {request.to}", where=summary.id, next=f"They can be for: {known}.")
    if request.generation is not None:
        raise BadUsage("--generation applies only to the session's own agent", where="--generation", next="Leave it out.")
    return _plan_conversion(host, session, request, writer, notes, _describe_holes(summary, lost))


def _describe_holes(summary: Summary, lost: int) -> list[str]:
    events = counted(lost, "event", "events")
    return [f"{summary.id}: {events} of its journal can no longer be read. `dreamkeep audit` says more."] if lost else []


# -- byte for byte


def _plan_exact(host: Host, root: str, session: StoredSession, request: RestoreRequest) -> _RestorePlan | None:
    """None when nothing was captured from files, so that only messages are known."""
    files: list[RestoredFile] = []
    rows: dict[str, _Rows] = {}
    notes: list[str] = []
    is_whole = True
    # Subagents first: when the session itself appears, all of it is there.
    for summary in [*reversed(session.subagents), session.summary]:
        is_own = summary is session.summary
        generation = request.generation if is_own else None
        found = exact.find_files(host, f"{root}/{folder_of(summary.id)}", summary, request.home, generation)
        if is_own and not found.files and not found.databases:
            return None
        notes += [*found.notes, *_describe_holes(summary, found.lost)]
        is_whole = is_whole and not found.lost
        for file in found.files:
            files.append(_file(host, file, summary, found.lost))
            notes += _describe_losses(file)
        for database in found.databases:
            _add_rows(rows, database, summary, found.lost)
            notes += [f"{database.path}: {_MASKED}"] if database.masked else []
    if request.generation is not None and not any("generation" in file.about for file in files):
        raise NotFound("its files were never rewritten: there is only one generation", where="--generation", next="Leave it out.")
    if request.cwd:
        notes.append("--cwd is for converted sessions; this one continues in its own folder.")
    last_path = [*(file.path for file in files), *rows][-1]
    home = request.home.path if request.home.named else other_home(request.to, last_path, request.home)
    cwd = session.summary.cwd
    if writer := registry.writer(request.to):
        files = writer.beside(host, files, cwd, request.home.named)
    return _RestorePlan(session.summary.native_id, cwd, files, list(rows.values()), Counter(), notes, is_whole, home)


def _file(host: Host, file: exact.ExactFile, summary: Summary, lost: int) -> RestoredFile:
    about: dict[str, Any] = {
        "role": file.role,
        **({"damaged": True} if lost else {}),
        **({"masked": True} if file.masked else {}),
    }
    is_whole = not lost and not file.masked
    if file.generations > 1:
        about |= {"generation": file.generation, "generations": file.generations}
    if file.form == SHARED:
        present = read_file(host, file.path) if host.stat(file.path) else b""
        joined = exact.add_lines(present, file.pieces())
        return RestoredFile(file.path, lambda: [present if joined is None else joined], is_whole, summary.id, about)
    packed = f"{file.path}{_ZST}"
    if file.form == LINES_ZST and host.stat(packed) is not None:
        if put.compare_content(Unpacked(host, packed), file.pieces) != put.SAME:
            raise put.refusal(packed)
        return RestoredFile(packed, lambda: [read_file(host, packed)], is_whole, summary.id, about)
    return RestoredFile(file.path, file.pieces, is_whole, summary.id, about)


def _describe_losses(file: exact.ExactFile) -> list[str]:
    notes = [f"{file.path}: {_MASKED}"] if file.masked else []
    if file.generation != file.generations:
        notes.append(
            f"{file.path}: version {file.generation} of {file.generations} ({file.size} bytes); the newest ({file.newest} bytes)"
            " holds less. Choose another with --generation."
        )
    return notes


def _add_rows(rows: dict[str, _Rows], database: exact.Database, summary: Summary, lost: int) -> None:
    store = row_store(summary.agent)
    if store is None:
        raise Unsupported(
            f"can't put rows back into {summary.agent}'s database",
            where=database.path,
            next="Restore it --to another agent.",
        )
    merged = rows.get(database.path) or _Rows(database.path, {}, store, True)
    if database.masked:
        merged = merged._replace(exact=False, masked=True)
    if lost:
        merged = merged._replace(exact=False, damaged=True)
    rows[database.path] = merged._replace(rows=store.join_rows(merged.rows, database.rows))


# -- converted


def _plan_conversion(
    host: Host, session: StoredSession, request: RestoreRequest, writer: TalkWriter, notes: list[str], holes: list[str]
) -> _RestorePlan:
    summary = session.summary
    cwd = request.cwd or summary.cwd or request.home.path
    talk, lost = convert.build_talk(summary, session.messages(), session.about, cwd)
    if not talk.steps:
        what = "it holds nothing that could be restored"
        raise NotFound(what, where=summary.id, next=" ".join([*holes, "Choose another session."]))
    if session.subagents:
        lost["sessions of subagents: each can be restored by itself"] += len(session.subagents)
    made = writer.convert(host, request.home.places(request.to)[0], talk)
    lost.update(made.lost)
    store = row_store(request.to) if made.database else None
    rows = [_Rows(made.database, made.rows, store, False)] if store else []
    home = request.home.path if request.home.named else ""
    return _RestorePlan(made.native, talk.cwd, list(made.files), rows, lost, [*notes, *holes], False, home)


def list_targets() -> list[str]:
    """Agents for which sessions of others can be converted."""
    return [agent.name for agent in registry.agents() if agent.writer]


# -- writing


def _check_plan(host: Host, plan: _RestorePlan) -> None:
    """Refuse before anything is touched."""
    for file in plan.files:
        with _translated(file.path):
            if put.compare_target(host, put.resolve_target(host, file.path), file.pieces) == put.OTHER and not file.made_from:
                raise put.refusal(file.path)
    for rows in plan.rows:
        with _translated(rows.path):
            rows.store.check_rows(host, rows.path, rows.rows)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise put.restore_error(problem, path) from problem


def _is_here(host: Host, folder: str) -> bool:
    try:
        stat = host.stat(folder)
    except (OSError, ValueError):  # too long, not accessible, or no path at all
        return False
    return stat is not None and stat.is_folder


def _put_file(host: Host, root: str, file: RestoredFile, dry_run: bool) -> dict[str, Any]:
    with _translated(file.path):
        if dry_run:
            verdict = put.compare_target(host, put.resolve_target(host, file.path), file.pieces)
            action = {put.ABSENT: put.CREATED, put.SAME: put.UNCHANGED}.get(verdict, put.REPLACED)
            done = put.PlacedFile(file.path, action, sum(map(len, file.pieces())))
        else:
            aside = f"{root}/aside/{os.path.basename(folder_of(file.session))}.restore-{host.random(6).hex()}"
            done = put.put_file(host, file.path, file.pieces, aside=aside, over=file.made_from)
    answer: dict[str, Any] = {"path": done.path, "bytes": done.size, "exact": file.exact, "action": done.action, **file.about}
    return {**answer, "aside": done.aside} if done.aside else answer


def _resume_command(plan: _RestorePlan, request: RestoreRequest) -> str:
    """The command that resumes the session; "" where there is none (a subagent, a page in the browser, a name that is no id)."""
    agent = registry.find(request.to)
    if agent is None or not agent.resume_command or not _ID.fullmatch(plan.native):
        return ""
    words = [_quoted(plan.native if word == SESSION else word) for word in agent.resume_command]
    if plan.home:
        moved = [name for name in agent.home_variables if request.home.environment.get(name)]
        unset = ["env", *(word for name in moved for word in ("-u", name))] if moved else []
        words = [*unset, f"HOME={_quoted(plan.home)}", *words]
    change_folder = ["cd", _quoted(plan.cwd), "&&"] if plan.cwd and "\0" not in plan.cwd else []
    return " ".join([*change_folder, *words])


def _quoted(word: str) -> str:
    """The word as a shell takes it, on one line, whatever characters a folder's name has."""
    if word.isprintable():
        return shlex.quote(word)
    parts = (char if char.isprintable() and char not in "'\\" else _escaped(char) for char in word)
    return f"$'{''.join(parts)}'"


def _escaped(char: str) -> str:
    return "".join(
        f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "replace")
    )
