"""`dream`, `hygiene`, `notes`, `note`, `page`, `tasks`, `task`: call one verb of Keep, print, give the exit code."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from typing import Any

from dreamkeep.errors import BadUsage
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text

Print = Callable[[Namespace, Any, Callable[[Any], str]], None]


_RUN = ("if_due", "dry_run", "preview", "export", "imported", "backend", "with_model", "session", "limit", "again", "since")
#: Flags and words that not every act has a use for: as the parser calls them, and a flag as it is typed.
_TYPED = {
    **{name: f"--{name.replace('_', '-')}" for name in (*_RUN, "kind", "project", "reason", "state", "to")},
    "imported": "--import",
    **dict.fromkeys(("what", "text", "title"), ""),
}
_CHANGES: dict[str, tuple[str, ...]] = dict.fromkeys(("pin", "unpin", "retract", "confirm", "reject"), ("what", "reason"))
_USES: dict[str, dict[str, tuple[str, ...]]] = {
    "dream": {
        "": _RUN,
        "status": (),
        "history": ("limit",),
        "why": ("what",),
        "undo": ("what",),
    },
    "note": {"add": ("what", "kind", "project"), "promote": ("what", "to"), "edit": ("what", "text", "reason"), **_CHANGES},
    "task": {"open": ("what", "project"), "close": ("what", "state"), "show": ("what",), "rename": ("what", "title")},
}


def _check_used(arguments: Namespace) -> None:
    """Who types something expects something of it: what would be left out is refused before anything is done."""
    uses = _USES[arguments.verb][arguments.act or ""]
    for name, flag in _TYPED.items():
        given = getattr(arguments, name, None)
        if given and name not in uses:
            act = " ".join(filter(None, (arguments.verb, arguments.act)))
            raise BadUsage(
                f"`{act}` doesn't take {flag or repr(given)}",
                where=act,
                next="Leave it out. Nothing was done." if flag else "Leave it out, or quote a text of several words.",
            )


def dream(keep: Keep, arguments: Namespace, show: Print) -> int:
    _check_used(arguments)
    if arguments.act == "status":
        show(arguments, keep.dream_status(), status)
    elif arguments.act == "history":
        show(arguments, {"runs": keep.dream_history()[: arguments.limit]}, history)
    elif arguments.act == "why":
        show(arguments, keep.dream_why(_needed(arguments.what, "no note given")), why)
    elif arguments.act == "undo":
        show(arguments, keep.dream_undo(_needed(arguments.what, "no run given")), _undone)
    else:
        return _run(keep, arguments, show)
    return 0


def _undone(done: dict[str, Any]) -> str:
    if done.get("before"):
        return f"Run {done['run']} was already undone."
    return f"Undid run {done['run']}.\nThe sessions it read still count as read; `dreamkeep dream --session ID` reads one again."


def _project(keep: Keep, arguments: Namespace) -> str | None:
    """By a name it has or had, or by the path of a folder in it."""
    return keep.project_named(arguments.project) if arguments.project else arguments.project


def _needed(what: str | None, question: str) -> str:
    if not what:
        raise BadUsage(question, where="dream", next="`dreamkeep notes` and `dreamkeep dream history` list them.")
    return what


def _run(keep: Keep, arguments: Namespace, show: Print) -> int:
    if arguments.export or arguments.imported:
        return _exchange(keep, arguments, show)
    made = keep.dream(
        if_due=arguments.if_due,
        dry_run=arguments.dry_run,
        preview=arguments.preview,
        backend=arguments.backend,
        with_model=arguments.with_model,
        sessions=arguments.session,
        limit=arguments.limit,
        again=arguments.again,
        since=arguments.since,
    )
    show(arguments, made, lambda made: report(made, named=bool(arguments.session)))
    if arguments.if_due:
        for one in made["sessions"]:
            if one["status"] == "failed":  # one that started by itself has nothing but this to say it with
                text.complain(f"{one['id']}: {one.get('reason', '')}")
        if made.get("unanswered"):
            text.complain(made["unanswered"])
    left_alone = any(one["problem"] for one in made.get("pages", ()))
    return 4 if made["lock"] == "busy" else 1 if made["failed"] or made.get("unanswered") or left_alone else 0


def _exchange(keep: Keep, arguments: Namespace, show: Print) -> int:
    """Requests to files, or answers from them."""
    chosen = arguments.imported and (arguments.session or arguments.limit or arguments.again or arguments.since)
    if arguments.if_due or arguments.backend or arguments.with_model or chosen:
        flag = "--export" if arguments.export else "--import"
        raise BadUsage(f"{flag} asks no model itself", where=flag, next="Leave the other flags out. Nothing was done.")
    if arguments.export:
        chosen = {name: getattr(arguments, name) for name in ("limit", "again", "since")}
        show(arguments, keep.dream_export(arguments.export, sessions=arguments.session, **chosen), _exported)
        return 0
    made = keep.dream_import(arguments.imported)
    show(arguments, made, _imported)
    return 4 if made["lock"] == "busy" else 1 if made["failed"] or made["requests"] or made["problems"] else 0


def _exported(made: dict[str, Any]) -> str:
    if not made["requests"]:
        return "No sessions are waiting for a model. `--again` exports sessions that were already read, for example by rules."
    asked, sessions = text.counted(made["requests"], "request"), text.counted(len(made["sessions"]), "session")
    folder = text.line(made["folder"])
    return (
        f"Wrote {asked} for {sessions} (about {made['tokens']:,} tokens) to {folder}\n"
        "Answer each file in requests/ with a file of the same name in answers/. Or send a file in batch/ to its vendor and put\n"
        f"the results into answers/. Then run: dreamkeep dream --import {folder}"
    )


def _imported(made: dict[str, Any]) -> str:
    if made["lock"] == "busy":
        return report(made)
    # Those that wait are not named one by one: the requests say what they wait for.
    told = {**made, "sessions": [one for one in made["sessions"] if one["status"] != "pending"]}
    lines = [report(told), *(f"Not read: {text.line(one)}" for one in made["problems"])]
    if made["requests"]:
        lines.append(f"{text.counted(made['requests'], 'request')} still unanswered in {text.line(made['folder'])}/requests")
    return "\n".join(lines)


def report(made: dict[str, Any], named: bool = False) -> str:
    """`named`: only of sessions that were asked for by name."""
    return "\n".join([*_by_hand(made), *_shelved(made), _read(made, named), *_left_alone(made)])


def _by_hand(made: dict[str, Any]) -> list[str]:
    pages = made.get("pages", ())
    edited = [one for one in pages if one["edits"]]
    return [f"Applied {text.counted(one['edits'], 'hand edit')} from {text.line(one['path'])}{_no_room(one)}" for one in edited]


def _no_room(one: dict[str, Any]) -> str:
    left = one.get("left_out", 0)
    return f" (no room for {text.counted(left, 'note')}; `dreamkeep note pin NOTE` keeps one on the page)" if left else ""


def _left_alone(made: dict[str, Any]) -> list[str]:
    """Also of a report that was kept: anybody may have written it."""
    pages = made.get("pages")
    found = [one for one in pages if isinstance(one, dict) and one.get("problem")] if isinstance(pages, list) else []
    return [f"Not written: {text.line(str(one.get('path', '')))}: {text.line(str(one['problem']))}" for one in found]


def _read(made: dict[str, Any], named: bool) -> str:
    if made["lock"] == "busy":
        return f"Another dream is running. Sessions waiting: {made['waiting']}."
    if not made["considered"] and made["run"] and not made.get("preview"):
        return f"No sessions to read; compared the notes of earlier runs.\n{_changes(made)}\n{_way_back(made)}"
    if not made["considered"]:
        ended = "A dream reads ended sessions: end one with `dreamkeep end ID`, or all idle ones with `dreamkeep hygiene`."
        if named:
            ended = "not_completed: it has not ended (`dreamkeep end ID`). already_consolidated: it was already read to the end."
        hint = _TRY_AGAIN if made.get("given_up") and not named else "" if made["waiting"] else ended
        why = text.line(made.get("why") or "no sessions are waiting")
        told = f"Nothing {'else ' if _by_hand(made) else ''}to dream about: {why}."
        pages = [row for one in made.get("diff", {}).get("pages", ()) for row in _page_diff(one)]
        return "\n".join([told, *([hint] if hint else []), *pages])
    if made.get("dry_run"):
        size = made["estimate"]
        messages = text.counted(size["messages"], "message")
        lines = [f"Would read {text.counted(size['sessions'], 'session')}: {messages}, about {size['tokens']} tokens."]
        return "\n".join([*lines, *(f"  {text.line(one['id'])}" for one in made["sessions"]), *_given_up(made)])
    notes = made["notes"]
    read = f"Read {made['processed']} of {text.counted(made['considered'], 'session')}"
    lines = [f"{read}: {text.counted(made['insights_added'], 'insight')}. {_changes(made)}", *_inbox(notes)]
    lines += [
        f"  {one['status']}: {text.line(one['id'])}: {text.line(one['reason'])}" for one in made["sessions"] if one.get("reason")
    ]
    lines += [
        f"  {_SIGNS.get(one['state'], '~')} {one['kind']}: {text.line(one['text'])}"
        for one in made.get("diff", {}).get("notes", ())
    ]
    lines += [row for one in made.get("diff", {}).get("pages", ()) for row in _page_diff(one)]
    lines += _given_up(made)
    if made.get("preview"):
        return "\n".join([*lines, "Nothing was written."])
    changed = made["processed"] or made["insights_added"] or any(notes.values())
    return "\n".join([*lines, *([_way_back(made)] if changed else [])])


def _changes(made: dict[str, Any]) -> str:
    told = (("added", "new"), ("strengthened", "strengthened"), ("superseded", "superseded"), ("retracted", "retracted"))
    counts = [f"{made['notes'][key]} {word}" for key, word in told if made["notes"][key]]
    return f"Notes: {', '.join(counts) or 'no changes'}."


def _way_back(made: dict[str, Any]) -> str:
    return f"Undo with: dreamkeep dream undo {made['run']}"


def _inbox(notes: dict[str, int]) -> list[str]:
    """What became of suggestions, where something did."""
    new, over = notes.get("suggested", 0), notes.get("expired", 0)
    told = [f"{new} new"] * bool(new) + [f"{over} expired"] * bool(over)
    return [f"Inbox: {', '.join(told)}. Decide with: dreamkeep review"] if told else []


def _shelved(made: dict[str, Any]) -> list[str]:
    """Of the one run that put notes of an earlier version into the inbox."""
    found = made.get("shelved")
    if not found:
        return []
    count = text.counted(found["notes"], "note")
    if not found["run"]:
        return [f"{count} from an earlier version would move to the inbox."]
    return [
        f"Moved {count} from an earlier version to the inbox: nobody had confirmed them. Decide with: dreamkeep review",
        f"Undo with: dreamkeep dream undo {found['run']}",
    ]


_TRY_AGAIN = "Retry one with `dreamkeep dream --session ID`, or all with another --backend. `dreamkeep dream status` lists them."


def _given_up(made: dict[str, Any]) -> list[str]:
    found = made.get("given_up", ())
    if not found:
        return []
    last = found[-1]
    count = text.counted(len(found), "session")
    return [f"Gave up on {count} after {text.counted(last['attempts'], 'attempt')}: {text.line(last['reason'])}", _TRY_AGAIN]


def _page_diff(one: dict[str, Any]) -> list[str]:
    if one["problem"]:
        return [f"{text.line(one['path'])} would not be written: {text.line(one['problem'])}"]
    first = f" (after applying {text.counted(one['edits'], 'hand edit')})" if one["edits"] else ""
    # Without what names the two sides: there is but one file.
    return [f"{text.line(one['path'])}{first}:", *(f"  {text.line(row)}" for row in one["diff"].splitlines()[2:])]


_SIGNS = {"active": "+", "suggested": "?", "superseded": "-", "retracted": "-", "expired": "-", "closed": "✓"}


_POISONED = "A poisoned session failed too often. Retry it with `dreamkeep dream --session ID`, or all with another --backend."


def status(found: dict[str, Any]) -> str:
    trigger = found["trigger"]
    lines = [f"{'A dream is due' if trigger['due'] else 'No dream is due'}: {text.line(trigger['why'])}."]
    if found["running"]:
        lines.append("A dream is running.")
    rows = [["SESSION", "ELIGIBILITY", "ATTEMPTS", "COMPLETED"]]
    rows += [
        [text.line(one["id"]), one["eligibility"], str(one["attempts"]), (one["completed_at"] or "")[:16]]
        for one in found["sessions"]
    ]
    lines += (
        [text.table(rows)]
        if len(rows) > 1
        else ["No session has ended yet. End one with `dreamkeep end`, or all idle ones with `dreamkeep hygiene`."]
    )
    lines += [
        f"  {text.line(one['id'])}: {text.line(one['failure_reason'])}" for one in found["sessions"] if one["failure_reason"]
    ]
    if any(one["eligibility"] == "poisoned" for one in found["sessions"]):
        lines.append(_POISONED)
    last = found["last_report"] or {}
    if last.get("unanswered"):
        lines.append(f"The last dream got no answer: {text.line(str(last['unanswered']))}")
    lines += _left_alone(found)
    return "\n".join(lines)


def history(found: dict[str, Any]) -> str:
    if not found["runs"]:
        return "No dream has run yet."
    rows = [["RUN", "STARTED", "TRIGGER", "STATUS", "READ", "NOTES"]]
    for one in found["runs"]:
        made = one["report"]
        state = "undone" if one["undone"] else made.get("status", "running" if one.get("running") else "crashed")
        rows.append(
            [
                one["id"],
                (one["started_at"] or "")[:16],
                one["trigger"],
                state,
                str(made.get("processed", "")),
                str(made.get("notes", {}).get("added", "")),
            ]
        )
    left = [f"{one['id']}: {row}" for one in found["runs"] for row in _left_alone(one["report"])]
    return "\n".join([text.table(rows), *left])


def why(found: dict[str, Any]) -> str:
    note = found["note"]
    lines = [f"{note['id']}  {note['kind']}  {note['state']}{'  pinned' if note['pinned'] else ''}", text.clean(note["text"]), ""]
    lines += [f"  {text.line(one['session'])} {one['seq']}{_by(one)}: “{text.line(one['quote'])}”" for one in note["evidence"]]
    lines += [f"  {step['at'][:16]}  {step['what']}  {text.line(step['why'])}" for step in found["history"]]
    return "\n".join(lines)


def _by(quote: dict[str, Any]) -> str:
    """Who said it, and how it came there, as far as that is known."""
    known = [str(quote[key]) for key in ("author", "origin") if quote.get(key)]
    return f" ({text.line(', '.join(dict.fromkeys(known)))})" if known else ""


def hygiene(keep: Keep, arguments: Namespace, show: Print) -> int:
    done = keep.hygiene()
    show(arguments, done, _cleaned)
    return 1 if done["failed"] else 0


def _cleaned(done: dict[str, Any]) -> str:
    told = (
        ("Closed", len(done["closed"]), "idle session"),
        ("Added", done["reconverged"], "missing completion record"),
        ("Compressed", done["compressed"], "journal part"),
        ("Expired", done["expired"], "suggestion"),
    )
    lines = [f"{verb} {text.counted(count, what)}." for verb, count, what in told if count]
    failed = [f"  failed: {text.line(one['session'])}: {text.line(one['reason'])}" for one in done["failed"]]
    return "\n".join([*(lines or ["Nothing to do."] * (not failed)), *failed])


def notes(keep: Keep, arguments: Namespace, show: Print) -> int:
    state = None if arguments.state == "all" else arguments.state
    project = _project(keep, arguments)
    found = keep.notes(kind=arguments.kind, state=state, project=project)
    show(arguments, {"notes": found}, lambda told: _notes(told) if found else _no_notes(keep, arguments, project))
    return 0


def _notes(found: dict[str, Any]) -> str:
    return "\n".join(_note(one) for one in found["notes"])


def _no_notes(keep: Keep, arguments: Namespace, project: str | None) -> str:
    """That none is shown does not mean that there is none."""
    if unknown := _unknown(keep, project):
        return unknown
    others = [one for one in keep.notes(state=None, project=project) if arguments.kind in (None, one["kind"])]
    if others:
        counts = Counter(one["state"] for one in others)
        told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        return f"No matching notes. In other states: {told}. `--state all` shows them."
    if keep.notes(state=None):
        return "No matching notes. `dreamkeep notes --state all` lists all of them."
    return "No notes yet. `dreamkeep dream` reads finished sessions and writes notes."


def _unknown(keep: Keep, project: str | None) -> str:
    """ "" for a project that something is known of, and for none."""
    if not project or keep.sessions(project=project, limit=1) or keep.tasks(project=project):
        return ""
    if keep.notes(state=None, project=project):
        return ""
    name = text.line(project)
    return f"Unknown project {name!r}. `dreamkeep projects` lists them; `--project .` is the current folder's."


def _note(one: dict[str, Any]) -> str:
    pin = "*" if one["pinned"] else " "
    state = " (doubted)" if one.get("doubted") else "" if one["state"] == "active" else f" ({one['state']})"
    return f"{pin} {one['id']}  {one['kind']}{state}: {text.line(one['text'])}"


def note(keep: Keep, arguments: Namespace, show: Print) -> int:
    _check_used(arguments)
    if arguments.act == "add":
        kind = "preference" if arguments.kind is None else arguments.kind
        show(arguments, keep.note_add(arguments.what, kind=kind, project=_project(keep, arguments) or ""), _note)
    elif arguments.act == "promote":
        if not arguments.to:
            raise BadUsage("no file given", where="note promote", next="Name it: --to CLAUDE.md")
        show(arguments, keep.note_promote(arguments.what, arguments.to), _promoted)
    else:
        show(arguments, keep.note_change(arguments.what, arguments.act, text=arguments.text, reason=arguments.reason), _note)
    return 0


def _promoted(one: dict[str, Any]) -> str:
    said = "was added to" if one["added"] else "is already in"
    return f"{one['id']} {said} {text.line(one['file'])}:{one['line']}. Pages now leave it out, unless it is pinned."


def page(keep: Keep, arguments: Namespace, show: Print) -> int:
    done = keep.page(project=_project(keep, arguments) or "", write=arguments.write)
    show(arguments, done, _page)
    return 1 if done.get("problem") else 0


def _page(done: dict[str, Any]) -> str:
    if not done.get("problem") and not done["notes"] and not done.get("changed"):
        if done.get("project") == "":
            return "No notes apply to every project. Name a project: --project . is the current folder's."
        return "There are no notes for that project, so there is nothing to write. `dreamkeep notes` lists all notes."
    if "text" in done:
        return text.clean(done["text"])
    if done["problem"]:
        return f"{text.line(done['path'])}: {text.line(done['problem'])}. Nothing was written."
    edits = f", {text.counted(done['edits'], 'hand edit')} applied" if done["edits"] else ""
    left = f", {done['left_out']} left out" if done["left_out"] else ""
    said = "Wrote" if done["changed"] else "Unchanged:"
    return f"{said} {text.line(done['path'])} ({text.counted(done['notes'], 'note')}{edits}{left})"


def tasks(keep: Keep, arguments: Namespace, show: Print) -> int:
    project = _project(keep, arguments)
    show(arguments, {"tasks": keep.tasks(project=project)}, lambda told: _unknown(keep, project) or _tasks(told))
    return 0


def _tasks(found: dict[str, Any]) -> str:
    if not found["tasks"]:
        return "No tasks yet. A dream opens one for each session it reads; `dreamkeep task open` opens one by hand."
    rows = [["TASK", "STATE", "INSIGHTS", "TITLE"]]
    rows += [[one["id"], one["state"], str(one["insights"]), text.line(one["title"])] for one in found["tasks"]]
    return text.table(rows)


def task(keep: Keep, arguments: Namespace, show: Print) -> int:
    _check_used(arguments)
    if arguments.act == "open":
        done = keep.task_open(arguments.what, project=_project(keep, arguments) or "")
    elif arguments.act == "close":
        done = keep.task_close(arguments.what, state="done" if arguments.state is None else arguments.state)
    elif arguments.act == "rename":
        done = keep.task_rename(arguments.what, arguments.title)
    else:
        done = keep.task_show(arguments.what)
    show(arguments, done, _task)
    return 0


def _task(one: dict[str, Any]) -> str:
    lines = [f"{one['id']}  {one['state']}  {text.line(one['title'])}"]
    return "\n".join([*lines, *(f"  {found['type']}: {text.line(found['text'])}" for found in one["insights"])])
