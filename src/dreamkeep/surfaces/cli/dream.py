"""`dream` and `hygiene` on the command line."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from dreamkeep.errors import BadUsage
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer, check_used


def dream(keep: Keep, arguments: Namespace) -> VerbAnswer:
    check_used(arguments)
    if arguments.act == "status":
        return VerbAnswer(keep.dream_status(), describe_status)
    if arguments.act == "history":
        return VerbAnswer({"runs": keep.dream_history()[: arguments.limit]}, _describe_history)
    if arguments.act == "why":
        return VerbAnswer(keep.dream_why(_require(arguments.what, "no note given")), describe_why)
    if arguments.act == "undo":
        return VerbAnswer(keep.dream_undo(_require(arguments.what, "no run given")), _describe_undone)
    if arguments.export or arguments.imported:
        return _exchange(keep, arguments)
    return _run(keep, arguments)


def _run(keep: Keep, arguments: Namespace) -> VerbAnswer:
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
    if arguments.if_due:  # a dream that started by itself has no other place to report this
        for session in made["sessions"]:
            if session["status"] == "failed":
                text.complain(f"{session['id']}: {session.get('reason', '')}")
        if made.get("unanswered"):
            text.complain(made["unanswered"])
    unwritten = any(one["problem"] for one in made.get("pages", ()))
    code = 4 if made["lock"] == "busy" else 1 if made["failed"] or made.get("unanswered") or unwritten else 0
    return VerbAnswer(made, lambda made: _describe_report(made, named=bool(arguments.session)), code)


def _exchange(keep: Keep, arguments: Namespace) -> VerbAnswer:
    """Requests to files, or answers from them."""
    chosen = arguments.imported and (arguments.session or arguments.limit or arguments.again or arguments.since)
    if arguments.if_due or arguments.backend or arguments.with_model or chosen:
        flag = "--export" if arguments.export else "--import"
        raise BadUsage(f"{flag} asks no model itself", where=flag, next="Leave the other flags out. Nothing was done.")
    if arguments.export:
        chosen = {name: getattr(arguments, name) for name in ("limit", "again", "since")}
        return VerbAnswer(keep.dream_export(arguments.export, sessions=arguments.session, **chosen), _describe_exported)
    made = keep.dream_import(arguments.imported)
    code = 4 if made["lock"] == "busy" else 1 if made["failed"] or made["requests"] or made["problems"] else 0
    return VerbAnswer(made, _describe_imported, code)


def hygiene(keep: Keep, arguments: Namespace) -> VerbAnswer:
    done = keep.hygiene()
    return VerbAnswer(done, _describe_hygiene, 1 if done["failed"] else 0)


def _describe_undone(done: dict[str, Any]) -> str:
    if done.get("before"):
        return f"Run {done['run']} was already undone."
    return f"Undid run {done['run']}.\nThe sessions it read still count as read; `dreamkeep dream --session ID` reads one again."


def _require(what: str | None, question: str) -> str:
    if not what:
        raise BadUsage(question, where="dream", next="`dreamkeep notes` and `dreamkeep dream history` list them.")
    return what


def _describe_exported(made: dict[str, Any]) -> str:
    if not made["requests"]:
        return "No sessions are waiting for a model. `--again` exports sessions that were already read, for example by rules."
    asked, sessions = text.counted(made["requests"], "request"), text.counted(len(made["sessions"]), "session")
    folder = text.line(made["folder"])
    return (
        f"Wrote {asked} for {sessions} (about {made['tokens']:,} tokens) to {folder}\n"
        "Answer each file in requests/ with a file of the same name in answers/. Or send a file in batch/ to its vendor and put\n"
        f"the results into answers/. Then run: dreamkeep dream --import {folder}"
    )


def _describe_imported(made: dict[str, Any]) -> str:
    if made["lock"] == "busy":
        return _describe_report(made)
    # Waiting sessions are left out: the requests say what they wait for.
    read = {**made, "sessions": [session for session in made["sessions"] if session["status"] != "pending"]}
    lines = [_describe_report(read), *(f"Not read: {text.line(one)}" for one in made["problems"])]
    if made["requests"]:
        lines.append(f"{text.counted(made['requests'], 'request')} still unanswered in {text.line(made['folder'])}/requests")
    return "\n".join(lines)


def _describe_report(made: dict[str, Any], named: bool = False) -> str:
    """`named`: whether the sessions were named by the user."""
    return "\n".join(
        [*_describe_hand_edits(made), *_describe_shelved(made), _describe_run(made, named), *_describe_unwritten(made)]
    )


def _describe_hand_edits(made: dict[str, Any]) -> list[str]:
    pages = made.get("pages", ())
    edited = [one for one in pages if one["edits"]]
    return [
        f"Applied {text.counted(one['edits'], 'hand edit')} from {text.line(one['path'])}{_count_left_out(one)}" for one in edited
    ]


def _count_left_out(one: dict[str, Any]) -> str:
    left = one.get("left_out", 0)
    return f" (no room for {text.counted(left, 'note')}; `dreamkeep note pin NOTE` keeps one on the page)" if left else ""


def _describe_unwritten(made: dict[str, Any]) -> list[str]:
    """Pages that were not written. A stored report may have any form, because anybody may have written it."""
    pages = made.get("pages")
    found = [one for one in pages if isinstance(one, dict) and one.get("problem")] if isinstance(pages, list) else []
    return [f"Not written: {text.line(str(one.get('path', '')))}: {text.line(str(one['problem']))}" for one in found]


def _describe_run(made: dict[str, Any], named: bool) -> str:
    if made["lock"] == "busy":
        return f"Another dream is running. Sessions waiting: {made['waiting']}."
    if not made["considered"] and made["run"] and not made.get("preview"):
        return f"No sessions to read; compared the notes of earlier runs.\n{_count_changes(made)}\n{_undo_hint(made)}"
    if not made["considered"]:
        return _describe_idle_run(made, named)
    if made.get("dry_run"):
        return _describe_estimate(made)
    return _describe_reading(made)


def _describe_idle_run(made: dict[str, Any], named: bool) -> str:
    """A run without a session to read."""
    ended = "A dream reads ended sessions: end one with `dreamkeep end ID`, or all idle ones with `dreamkeep hygiene`."
    if named:
        ended = "not_completed: it has not ended (`dreamkeep end ID`). already_consolidated: it was already read to the end."
    hint = _TRY_AGAIN if made.get("given_up") and not named else "" if made["waiting"] else ended
    why = text.line(made.get("why") or "no sessions are waiting")
    line = f"Nothing {'else ' if _describe_hand_edits(made) else ''}to dream about: {why}."
    return "\n".join([line, *([hint] if hint else []), *_describe_page_diffs(made)])


def _describe_estimate(made: dict[str, Any]) -> str:
    size = made["estimate"]
    messages = text.counted(size["messages"], "message")
    line = f"Would read {text.counted(size['sessions'], 'session')}: {messages}, about {size['tokens']} tokens."
    return "\n".join([line, *(f"  {text.line(session['id'])}" for session in made["sessions"]), *_describe_given_up(made)])


def _describe_reading(made: dict[str, Any]) -> str:
    notes = made["notes"]
    read = f"Read {made['processed']} of {text.counted(made['considered'], 'session')}"
    lines = [f"{read}: {text.counted(made['insights_added'], 'insight')}. {_count_changes(made)}", *_count_suggestions(notes)]
    lines += [
        f"  {session['status']}: {text.line(session['id'])}: {text.line(session['reason'])}"
        for session in made["sessions"]
        if session.get("reason")
    ]
    lines += [
        f"  {_SIGNS.get(note['state'], '~')} {note['kind']}: {text.line(note['text'])}"
        for note in made.get("diff", {}).get("notes", ())
    ]
    lines += _describe_page_diffs(made)
    lines += _describe_given_up(made)
    if made.get("preview"):
        return "\n".join([*lines, "Nothing was written."])
    changed = made["processed"] or made["insights_added"] or any(notes.values())
    return "\n".join([*lines, *([_undo_hint(made)] if changed else [])])


def _count_changes(made: dict[str, Any]) -> str:
    words = (("added", "new"), ("strengthened", "strengthened"), ("superseded", "superseded"), ("retracted", "retracted"))
    counts = [f"{made['notes'][key]} {word}" for key, word in words if made["notes"][key]]
    return f"Notes: {', '.join(counts) or 'no changes'}."


def _undo_hint(made: dict[str, Any]) -> str:
    return f"Undo with: dreamkeep dream undo {made['run']}"


def _count_suggestions(notes: dict[str, int]) -> list[str]:
    """What became of suggestions, if anything did."""
    new, expired = notes.get("suggested", 0), notes.get("expired", 0)
    counts = [f"{new} new"] * bool(new) + [f"{expired} expired"] * bool(expired)
    return [f"Inbox: {', '.join(counts)}. Decide with: dreamkeep review"] if counts else []


def _describe_shelved(made: dict[str, Any]) -> list[str]:
    """The one run that moves notes of an earlier version to the inbox."""
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


def _describe_given_up(made: dict[str, Any]) -> list[str]:
    found = made.get("given_up", ())
    if not found:
        return []
    last = found[-1]
    count = text.counted(len(found), "session")
    return [f"Gave up on {count} after {text.counted(last['attempts'], 'attempt')}: {text.line(last['reason'])}", _TRY_AGAIN]


def _describe_page_diffs(made: dict[str, Any]) -> list[str]:
    return [line for page in made.get("diff", {}).get("pages", ()) for line in _describe_page_diff(page)]


def _describe_page_diff(page: dict[str, Any]) -> list[str]:
    if page["problem"]:
        return [f"{text.line(page['path'])} would not be written: {text.line(page['problem'])}"]
    first = f" (after applying {text.counted(page['edits'], 'hand edit')})" if page["edits"] else ""
    # Without the two lines that name the files: both are this page.
    return [f"{text.line(page['path'])}{first}:", *(f"  {text.line(row)}" for row in page["diff"].splitlines()[2:])]


_SIGNS = {"active": "+", "suggested": "?", "superseded": "-", "retracted": "-", "expired": "-", "closed": "✓"}


_POISONED = "A poisoned session failed too often. Retry it with `dreamkeep dream --session ID`, or all with another --backend."


def describe_status(found: dict[str, Any]) -> str:
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
    lines += _describe_unwritten(found)
    return "\n".join(lines)


def _describe_history(found: dict[str, Any]) -> str:
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
    left = [f"{one['id']}: {row}" for one in found["runs"] for row in _describe_unwritten(one["report"])]
    return "\n".join([text.table(rows), *left])


def describe_why(found: dict[str, Any]) -> str:
    note = found["note"]
    lines = [f"{note['id']}  {note['kind']}  {note['state']}{'  pinned' if note['pinned'] else ''}", text.clean(note["text"]), ""]
    lines += [
        f"  {text.line(one['session'])} {one['seq']}{_describe_author(one)}: “{text.line(one['quote'])}”"
        for one in note["evidence"]
    ]
    lines += [f"  {step['at'][:16]}  {step['what']}  {text.line(step['why'])}" for step in found["history"]]
    return "\n".join(lines)


def _describe_author(quote: dict[str, Any]) -> str:
    """The author and origin of a quote, as far as they are known."""
    known = [str(quote[key]) for key in ("author", "origin") if quote.get(key)]
    return f" ({text.line(', '.join(dict.fromkeys(known)))})" if known else ""


def _describe_hygiene(done: dict[str, Any]) -> str:
    counts = (
        ("Closed", len(done["closed"]), "idle session"),
        ("Added", done["reconverged"], "missing completion record"),
        ("Compressed", done["compressed"], "journal part"),
        ("Expired", done["expired"], "suggestion"),
    )
    lines = [f"{verb} {text.counted(count, what)}." for verb, count, what in counts if count]
    failed = [f"  failed: {text.line(one['session'])}: {text.line(one['reason'])}" for one in done["failed"]]
    return "\n".join([*(lines or ["Nothing to do."] * (not failed)), *failed])
