"""`restore SESSION --to AGENT`: a session written back for an agent, so that the agent's own resume goes on with it.

    it came from that agent    every file of it byte for byte (exact.py), its subagents' too; of Hermes its rows
    else                       converted from the folded messages (back/), with a list of what was lost

Everything is looked at before anything is written: one refusal, and nothing is touched. A crash in between leaves each file as it
was or as it is to be, and running it again finishes the rest: files that are there already count as done.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from dreamkeep.capture.content import Unpacked
from dreamkeep.capture.sources import AGENTS, LINES_ZST, SHARED, discovery
from dreamkeep.errors import BadUsage, NotFound, Unsupported
from dreamkeep.host import Host, read_file
from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery import beside, exact, put, statedb
from dreamkeep.recovery.back import claude, codex, gemini, hermes, hermes_webui, talk
from dreamkeep.recovery.beside import File
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary

#: Agents for which sessions of others are converted.
CONVERTED = ("claude", "codex", "gemini", "hermes", "hermes-webui")
_RESUMES = {"claude": claude.resume, "codex": codex.resume, "gemini": gemini.resume, "hermes": hermes.resume}
_ZST = ".zst"


class Story(NamedTuple):
    """What the index knows: the session, and its subagents' sessions below it."""

    summary: Summary
    messages: list[Message]
    about: Mapping[str, Any]
    subagents: list[Summary]


class Wish(NamedTuple):
    """`home`: the home folder that is meant; `named`: whether the user named it. `cwd`: for conversions another folder."""

    to: str
    home: str
    named: bool
    environment: Mapping[str, str]
    generation: int | None = None
    convert: bool = False
    cwd: str = ""
    dry_run: bool = False


class _Rows(NamedTuple):
    path: str
    sessions: list[Mapping[str, Any]]
    messages: list[Mapping[str, Any]]
    exact: bool


class _Plan(NamedTuple):
    native: str
    cwd: str
    files: list[File]
    rows: list[_Rows]
    lost: Counter[str]
    notes: list[str]
    exact: bool


def story(store: Store, session: str) -> Story:
    with store.reading():
        summary = store.session(session)
        assert summary is not None, "the caller has resolved the id"
        about = json.loads(store.state(session))
        return Story(summary, store.messages(session), about, _subagents(summary, store.sessions(agent=summary.agent)))


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
    if wish.to not in AGENTS:
        raise BadUsage(f"no agent `{wish.to}` keeps sessions on disk", where="--to", next=f"Known are: {', '.join(AGENTS)}.")
    plan = _plan(host, root, told, wish)
    _check(host, plan)
    shown = [_put(host, root, file, wish.dry_run) for file in plan.files]
    for rows in plan.rows:
        done = statedb.put_rows(host, rows.path, rows.sessions, rows.messages, dry_run=wish.dry_run)
        plan.lost.update(done.lost)
        exactly = rows.exact and not +done.lost
        shown.append({"path": rows.path, "bytes": done.size, "exact": exactly, "action": done.action, "rows": done.added})
    return {
        "session": told.summary.id,
        "to": wish.to,
        "native_id": plan.native,
        "exact": plan.exact and all(file["exact"] for file in shown if file.get("role") not in (beside.MARKER, beside.INDEX)),
        "dry_run": wish.dry_run,
        "files": shown,
        "lost": [{"what": what, "count": count} for what, count in sorted((+plan.lost).items(), key=lambda pair: -pair[1])],
        "notes": plan.notes,
        "cwd": plan.cwd,
        "resume": _resume(plan, wish),
    }


def _plan(host: Host, root: str, told: Story, wish: Wish) -> _Plan:
    if told.summary.agent == wish.to and not wish.convert:
        plan = _exact(host, root, told, wish)
        if plan is not None:
            return plan
    if wish.to not in CONVERTED:
        raise Unsupported(
            f"sessions can't be converted for {wish.to}", where=told.summary.id, next=f"They can for: {', '.join(CONVERTED)}."
        )
    if wish.generation is not None:
        raise BadUsage("a generation is one of a file of that agent", where="--generation", next="Leave it out.")
    return _converted(host, told, wish)


# -- byte for byte


def _exact(host: Host, root: str, told: Story, wish: Wish) -> _Plan | None:
    """None when nothing of it was captured from files: then its messages are all there is."""
    home = wish.home if wish.named else None
    files: list[File] = []
    rows: dict[str, _Rows] = {}
    notes: list[str] = []
    # Subagents first: when the session itself appears, all of it is there.
    for summary in [*reversed(told.subagents), told.summary]:
        own = summary is told.summary
        found = exact.find(host, f"{root}/{folder_of(summary.id)}", summary, home, wish.generation if own else None)
        if own and not found.files and not found.databases:
            return None
        notes += found.notes
        for file in found.files:
            files.append(_file(host, file, summary))
            notes += _told(file)
        for database in found.databases:
            _add_rows(rows, database, summary)
    if wish.generation is not None and not any("generation" in file.about for file in files):
        raise NotFound("its files were never rewritten: there is one generation", where="--generation", next="Leave it out.")
    plan = _Plan(told.summary.native_id, told.summary.cwd, files, list(rows.values()), Counter(), notes, True)
    if wish.to == "gemini":
        return plan._replace(files=beside.owned(host, plan.files, told.summary.cwd, wish.named))
    return plan._replace(files=beside.listed(host, plan.files)) if wish.to == "hermes-webui" else plan


def _file(host: Host, file: exact.File, summary: Summary) -> File:
    about: dict[str, Any] = {"role": file.role}
    if file.generations > 1:
        about |= {"generation": file.generation, "generations": file.generations}
    if file.form == SHARED:
        there = read_file(host, file.path) if host.stat(file.path) else b""
        whole = exact.union(there, file.pieces())
        return File(file.path, lambda: [there if whole is None else whole], True, summary.id, about)
    packed = f"{file.path}{_ZST}"
    if file.form == LINES_ZST and host.stat(packed) is not None:
        if put.judge_content(Unpacked(host, packed), file.pieces) != put.SAME:
            raise put.refusal(packed)
        return File(packed, partial(_read_again, host, packed), True, summary.id, about)
    return File(file.path, file.pieces, True, summary.id, about)


def _read_again(host: Host, path: str) -> Iterable[bytes]:
    return [read_file(host, path)]


def _told(file: exact.File) -> list[str]:
    if file.generation == file.generations:
        return []
    return [
        f"{file.path}: version {file.generation} of {file.generations} ({file.size} bytes); the newest, {file.newest} bytes,"
        " holds less. --generation chooses another."
    ]


def _add_rows(rows: dict[str, _Rows], database: exact.Database, summary: Summary) -> None:
    if summary.agent != "hermes":
        raise Unsupported(
            f"rows of {summary.agent}'s database can't be put back", where=database.path, next="Restore it --to another agent."
        )
    known = rows.setdefault(database.path, _Rows(database.path, [], [], True))
    known.sessions[:0] = database.rows.get(statedb.SESSIONS, ())
    known.messages.extend(database.rows.get(statedb.MESSAGES, ()))
    known.messages.sort(key=lambda row: row["id"])


# -- converted


def _converted(host: Host, told: Story, wish: Wish) -> _Plan:
    said, lost = talk.plain(told.summary, told.messages, told.about, wish.cwd or told.summary.cwd or wish.home)
    if not said.steps:
        raise NotFound("nothing that could be restored was said in it", where=told.summary.id, next="Choose another session.")
    place = discovery(wish.to).homes(wish.home, wish.environment)[0]
    if said.cwd and host.stat(said.cwd) is None:
        lost["folders that are not on this machine: --cwd names another one to go on in"] += 1
    if told.subagents:
        lost["sessions of subagents: each can be restored by itself"] += len(told.subagents)
    plan = _Plan("", said.cwd, [], [], lost, [], False)
    if wish.to == "hermes":
        made = hermes.write(said)
        lost.update(made.lost)
        rows = _Rows(f"{place}/state.db", [made.session], list(made.messages), False)
        return plan._replace(native=made.native, rows=[rows])
    if wish.to == "hermes-webui":
        session = hermes_webui.write(said)
        lost.update(session.written.lost)
        return plan._replace(native=session.written.native, files=beside.listed(host, [_written(place, session.written, told)]))
    if wish.to == "gemini":
        written = gemini.write(said, beside.project(host, place, said.cwd))
    else:
        written = (claude if wish.to == "claude" else codex).write(said)
    lost.update(written.lost)
    files = [_written(place, written, told)]
    if wish.to == "gemini":
        files = [*beside.marks(host, f"{place}/{written.path}", said.cwd, told.summary.id), *files]
    return plan._replace(native=written.native, files=files)


def _written(place: str, written: talk.Written, told: Story) -> File:
    return File(f"{place}/{written.path}", lambda: [written.data], False, told.summary.id, {"role": "main"})


# -- doing it


def _check(host: Host, plan: _Plan) -> None:
    """Refuse before anything is touched."""
    for file in plan.files:
        if file.made_from is None and put.judge(host, host.real_path(file.path), file.pieces) == put.OTHER:
            raise put.refusal(file.path)
    for rows in plan.rows:
        statedb.put_rows(host, rows.path, rows.sessions, rows.messages, dry_run=True)


def _put(host: Host, root: str, file: File, dry_run: bool) -> dict[str, Any]:
    if dry_run:
        verdict = put.judge(host, host.real_path(file.path), file.pieces)
        action = {put.ABSENT: put.CREATED, put.SAME: put.UNCHANGED}.get(verdict, put.REPLACED)
        done = put.Placed(file.path, action, sum(map(len, file.pieces())))
    else:
        whose = os.path.basename(folder_of(file.session))
        aside = f"{root}/aside/{whose}.restore-{host.random(6).hex()}"
        done = put.put(host, file.path, file.pieces, aside=aside, over=file.made_from)
    shown: dict[str, Any] = {"path": done.path, "bytes": done.size, "exact": file.exact, "action": done.action, **file.about}
    return {**shown, "aside": done.aside} if done.aside else shown


def _resume(plan: _Plan, wish: Wish) -> str:
    """The exact command; "" where there is none (a subagent, or a page in the browser)."""
    if wish.to not in _RESUMES or "/" in plan.native:
        return ""
    words = shlex.join(_RESUMES[wish.to](plan.native, plan.cwd))
    home = f"HOME={shlex.quote(wish.home)} " if wish.named else ""
    return f"cd {shlex.quote(plan.cwd)} && {home}{words}" if plan.cwd else f"{home}{words}"
