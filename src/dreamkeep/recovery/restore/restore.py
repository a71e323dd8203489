"""`restore SESSION --to AGENT`: a session written back for an agent, so that the agent's own resume goes on with it.

    it came from that agent    every file of it byte for byte (exact.py), its subagents' too; of Hermes its rows
    else                       converted from the folded messages (its writer.py), with a list of what was lost

Everything is looked at before anything is written: one refusal, and nothing is touched. A crash in between leaves each file as it
was or as it is to be, and running it again finishes the rest: files that are there already count as done.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
from dreamkeep.recovery.stores import PutRows, RowStore, Tables, row_store
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")
_ZST = ".zst"
_MASKED = "secrets in it were masked at capture (capture.redact_raw): it has the same length, but not the same bytes."


class Story(NamedTuple):
    """What the index knows: the session, and its subagents' sessions below it."""

    summary: Summary
    #: Asked for only to convert them: a long session's words need not be held to copy its bytes.
    messages: Callable[[], list[Message]]
    about: Mapping[str, Any]
    subagents: list[Summary]


class Wish(NamedTuple):
    """`cwd`: for conversions another folder."""

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
    #: The home folder it lies in, where the agent does not look by itself; "" when it does.
    home: str


def story(store: Store, session: str, messages: Callable[[], list[Message]]) -> Story:
    with store.reading():
        summary = store.session(session)
        assert summary is not None, "the caller has resolved the id"
        about = json.loads(store.state(session))
        return Story(summary, messages, about, _subagents(summary, store.sessions(agent=summary.agent)))


def _subagents(summary: Summary, all_: list[Summary]) -> list[Summary]:
    """All below it, once each, whatever edges there are."""
    found: dict[str, Summary] = {summary.id: summary}
    todo = [summary.id]
    for parent in todo:
        for one in all_:
            if one.id not in found and ("subagent", parent) in one.lineage:
                found[one.id] = one
                todo.append(one.id)
    return list(found.values())[1:]


def restore(host: Host, root: str, told: Story, wish: Wish) -> dict[str, Any]:
    """What was done (or, with `dry_run`, what would be), as the contract's JSON."""
    if registry.find(wish.to) is None:
        known = ", ".join(registry.names())
        raise BadUsage(f"no agent `{wish.to}` keeps sessions on disk", where="--to", next=f"Known agents: {known}.")
    plan = _plan(host, root, told, wish)
    if plan.cwd and not _is_here(host, plan.cwd):
        plan.notes.append(f"{plan.cwd} is not on this machine; name the folder to continue in with --cwd.")
    _check(host, plan)
    shown = [_put(host, root, file, wish.dry_run) for file in plan.files]
    for rows in plan.rows:
        done = _put_rows(host, rows, wish.dry_run)
        plan.lost.update(done.lost)
        exactly = rows.exact and not +done.lost
        about = {name: True for name in ("damaged", "masked") if getattr(rows, name)}
        shown.append(
            {"path": rows.path, "bytes": done.size, "exact": exactly, "action": done.action, "rows": done.added, **about}
        )
    return {
        "session": told.summary.id,
        "to": wish.to,
        "native_id": plan.native,
        "exact": plan.exact and all(file["exact"] for file in shown if file.get("role") not in (MARKER, INDEX)),
        "dry_run": wish.dry_run,
        "files": shown,
        "lost": [{"what": what, "count": count} for what, count in sorted((+plan.lost).items(), key=lambda pair: -pair[1])],
        "notes": plan.notes,
        "cwd": plan.cwd,
        "resume": _resume(plan, wish),
    }


def _plan(host: Host, root: str, told: Story, wish: Wish) -> _RestorePlan:
    notes: list[str] = []
    folder = f"{root}/{folder_of(told.summary.id)}"
    if told.summary.agent == wish.to and not wish.convert:
        plan = _exact(host, root, told, wish)
        if plan is not None:
            return plan
        notes.append(f"{_none_of(wish.to, exact.lost(host, folder))}: converted, as a new session.")
    writer = registry.writer(wish.to)
    if writer is None:
        known = ", ".join(converted_for())
        raise Unsupported(f"sessions can't be converted for {wish.to}", where=told.summary.id, next=f"They can be for: {known}.")
    if wish.generation is not None:
        raise BadUsage("--generation applies only to the session's own agent", where="--generation", next="Leave it out.")
    holes = _holes(told.summary, exact.lost(host, folder))
    return _converted(host, told, wish, writer, notes, holes)


def _none_of(agent: str, lost: int) -> str:
    """Of a journal with holes nobody knows: lines of a file may be there, and not which file it was."""
    if lost:
        return f"What is left of its journal can't rebuild any of {agent}'s own files or rows"
    return f"The journal has none of {agent}'s own files or rows, only what was said"


def _holes(summary: Summary, lost: int) -> list[str]:
    events = counted(lost, "event", "events")
    return [f"{summary.id}: {events} of its journal can no longer be read. `dreamkeep audit` says more."] if lost else []


# -- byte for byte


def _exact(host: Host, root: str, told: Story, wish: Wish) -> _RestorePlan | None:
    """None when nothing of it was captured from files: then its messages are all there is."""
    files: list[RestoredFile] = []
    rows: dict[str, _Rows] = {}
    notes: list[str] = []
    whole = True
    # Subagents first: when the session itself appears, all of it is there.
    for summary in [*reversed(told.subagents), told.summary]:
        own = summary is told.summary
        found = exact.find(host, f"{root}/{folder_of(summary.id)}", summary, wish.home, wish.generation if own else None)
        if own and not found.files and not found.databases:
            return None
        notes += [*found.notes, *_holes(summary, found.lost)]
        whole = whole and not found.lost
        for file in found.files:
            files.append(_file(host, file, summary, found.lost))
            notes += _describe_losses(file)
        for database in found.databases:
            _add_rows(rows, database, summary, found.lost)
            notes += [f"{database.path}: {_MASKED}"] if database.masked else []
    if wish.generation is not None and not any("generation" in file.about for file in files):
        raise NotFound("its files were never rewritten: there is only one generation", where="--generation", next="Leave it out.")
    if wish.cwd:
        notes.append("--cwd is for converted sessions; this one continues in its own folder.")
    last = [*(file.path for file in files), *rows][-1]
    plan = _RestorePlan(told.summary.native_id, told.summary.cwd, files, list(rows.values()), Counter(), notes, whole, "")
    plan = plan._replace(home=wish.home.path if wish.home.named else other_home(wish.to, last, wish.home))
    writer = registry.writer(wish.to)
    return plan._replace(files=writer.beside(host, plan.files, told.summary.cwd, wish.home.named)) if writer else plan


def _file(host: Host, file: exact.ExactFile, summary: Summary, lost: int) -> RestoredFile:
    about: dict[str, Any] = {
        "role": file.role,
        **({"damaged": True} if lost else {}),
        **({"masked": True} if file.masked else {}),
    }
    whole = not lost and not file.masked
    if file.generations > 1:
        about |= {"generation": file.generation, "generations": file.generations}
    if file.form == SHARED:
        there = read_file(host, file.path) if host.stat(file.path) else b""
        union = exact.union(there, file.pieces())
        return RestoredFile(file.path, lambda: [there if union is None else union], whole, summary.id, about)
    packed = f"{file.path}{_ZST}"
    if file.form == LINES_ZST and host.stat(packed) is not None:
        if put.judge_content(Unpacked(host, packed), file.pieces) != put.SAME:
            raise put.refusal(packed)
        return RestoredFile(packed, partial(_read_again, host, packed), whole, summary.id, about)
    return RestoredFile(file.path, file.pieces, whole, summary.id, about)


def _read_again(host: Host, path: str) -> Iterable[bytes]:
    return [read_file(host, path)]


def _describe_losses(file: exact.ExactFile) -> list[str]:
    masked = [f"{file.path}: {_MASKED}"] if file.masked else []
    if file.generation == file.generations:
        return masked
    return [
        *masked,
        f"{file.path}: version {file.generation} of {file.generations} ({file.size} bytes); the newest ({file.newest} bytes)"
        " holds less. Choose another with --generation.",
    ]


def _add_rows(rows: dict[str, _Rows], database: exact.Database, summary: Summary, lost: int) -> None:
    store = row_store(summary.agent)
    if store is None:
        raise Unsupported(
            f"can't put rows back into {summary.agent}'s database",
            where=database.path,
            next="Restore it --to another agent.",
        )
    known = rows.get(database.path) or _Rows(database.path, {}, store, True)
    if database.masked:
        known = known._replace(exact=False, masked=True)
    if lost:
        known = known._replace(exact=False, damaged=True)
    rows[database.path] = known._replace(rows=store.join_rows(known.rows, database.rows))


# -- converted


def _converted(host: Host, told: Story, wish: Wish, writer: TalkWriter, notes: list[str], holes: list[str]) -> _RestorePlan:
    said, lost = convert.talk_of(told.summary, told.messages(), told.about, wish.cwd or told.summary.cwd or wish.home.path)
    if not said.steps:
        said_nothing = "it holds nothing that could be restored"
        raise NotFound(said_nothing, where=told.summary.id, next=" ".join([*holes, "Choose another session."]))
    place = wish.home.places(wish.to)[0]
    if told.subagents:
        lost["sessions of subagents: each can be restored by itself"] += len(told.subagents)
    made = writer.convert(host, place, said)
    lost.update(made.lost)
    store = row_store(wish.to) if made.database else None
    rows = [_Rows(made.database, made.rows, store, False)] if store else []
    home = wish.home.path if wish.home.named else ""
    return _RestorePlan(made.native, said.cwd, list(made.files), rows, lost, [*notes, *holes], False, home)


def converted_for() -> list[str]:
    """Agents for which sessions of others are converted."""
    return [agent.name for agent in registry.agents() if agent.writer]


# -- doing it


def _check(host: Host, plan: _RestorePlan) -> None:
    """Refuse before anything is touched."""
    for file in plan.files:
        with _translated(file.path):
            if put.compare_target(host, put.resolved(host, file.path), file.pieces) == put.OTHER and not file.made_from:
                raise put.refusal(file.path)
    for rows in plan.rows:
        with _translated(rows.path):
            rows.store.check_rows(host, rows.path, rows.rows)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise put.trouble(problem, path) from problem


def _is_here(host: Host, folder: str) -> bool:
    try:
        at = host.stat(folder)
    except (OSError, ValueError):  # too long, not to be looked at, or no path at all
        return False
    return at is not None and at.is_folder


def _put_rows(host: Host, rows: _Rows, dry_run: bool) -> PutRows:
    with _translated(rows.path):
        return rows.store.put_rows(host, rows.path, rows.rows, dry_run=dry_run)


def _put(host: Host, root: str, file: RestoredFile, dry_run: bool) -> dict[str, Any]:
    with _translated(file.path):
        return _placed(host, root, file, dry_run)


def _placed(host: Host, root: str, file: RestoredFile, dry_run: bool) -> dict[str, Any]:
    if dry_run:
        verdict = put.compare_target(host, put.resolved(host, file.path), file.pieces)
        action = {put.ABSENT: put.CREATED, put.SAME: put.UNCHANGED}.get(verdict, put.REPLACED)
        done = put.PlacedFile(file.path, action, sum(map(len, file.pieces())))
    else:
        whose = os.path.basename(folder_of(file.session))
        aside = f"{root}/aside/{whose}.restore-{host.random(6).hex()}"
        done = put.put(host, file.path, file.pieces, aside=aside, over=file.made_from)
    shown: dict[str, Any] = {"path": done.path, "bytes": done.size, "exact": file.exact, "action": done.action, **file.about}
    return {**shown, "aside": done.aside} if done.aside else shown


def _resume(plan: _RestorePlan, wish: Wish) -> str:
    """The exact command; "" where there is none (a subagent, a page in the browser, a name that is no id)."""
    agent = registry.find(wish.to)
    if agent is None or not agent.resume_command or not _ID.fullmatch(plan.native):
        return ""
    words = [_quoted(plan.native if word == SESSION else word) for word in agent.resume_command]
    if plan.home:
        moved = [name for name in agent.home_variables if wish.home.environment.get(name)]
        unset = ["env", *(word for name in moved for word in ("-u", name))] if moved else []
        words = [*unset, f"HOME={_quoted(plan.home)}", *words]
    goes = ["cd", _quoted(plan.cwd), "&&"] if plan.cwd and "\0" not in plan.cwd else []
    return " ".join([*goes, *words])


def _quoted(word: str) -> str:
    """For a shell, on one line, whatever a folder is called."""
    if word.isprintable():
        return shlex.quote(word)
    parts = (char if char.isprintable() and char not in "'\\" else _escaped(char) for char in word)
    return f"$'{''.join(parts)}'"


def _escaped(char: str) -> str:
    return "".join(
        f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "replace")
    )
