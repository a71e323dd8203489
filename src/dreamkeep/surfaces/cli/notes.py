"""Notes, tasks and pages on the command line."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any

from dreamkeep.errors import BadUsage
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer, check_used, find_project


def notes(keep: Keep, arguments: Namespace) -> VerbAnswer:
    state = None if arguments.state == "all" else arguments.state
    project = find_project(keep, arguments)
    found = keep.notes(kind=arguments.kind, state=state, project=project)
    if not found:
        return VerbAnswer({"notes": []}, lambda data: _explain_no_notes(keep, arguments, project))
    return VerbAnswer({"notes": found}, lambda data: "\n".join(map(_describe_note, data["notes"])))


def _explain_no_notes(keep: Keep, arguments: Namespace, project: str | None) -> str:
    """Why no note is listed: none matches may not mean that there are none."""
    if unknown := _explain_unknown_project(keep, project):
        return unknown
    others = [one for one in keep.notes(state=None, project=project) if arguments.kind in (None, one["kind"])]
    if others:
        counts = Counter(one["state"] for one in others)
        told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        return f"No matching notes. In other states: {told}. `--state all` shows them."
    if keep.notes(state=None):
        return "No matching notes. `dreamkeep notes --state all` lists all of them."
    return "No notes yet. `dreamkeep dream` reads finished sessions and writes notes."


def _explain_unknown_project(keep: Keep, project: str | None) -> str:
    """A message if nothing is known of this project; "" otherwise, and if no project was named."""
    if not project or keep.sessions(project=project, limit=1) or keep.tasks(project=project):
        return ""
    if keep.notes(state=None, project=project):
        return ""
    name = text.line(project)
    return f"Unknown project {name!r}. `dreamkeep projects` lists them; `--project .` is the current folder's."


def _describe_note(one: dict[str, Any]) -> str:
    pin = "*" if one["pinned"] else " "
    state = " (doubted)" if one.get("doubted") else "" if one["state"] == "active" else f" ({one['state']})"
    return f"{pin} {one['id']}  {one['kind']}{state}: {text.line(one['text'])}"


def note(keep: Keep, arguments: Namespace) -> VerbAnswer:
    check_used(arguments)
    if arguments.act == "add":
        kind = "preference" if arguments.kind is None else arguments.kind
        made = keep.note_add(arguments.what, kind=kind, project=find_project(keep, arguments) or "")
        return VerbAnswer(made, _describe_note)
    if arguments.act == "promote":
        if not arguments.to:
            raise BadUsage("no file given", where="note promote", next="Name it: --to CLAUDE.md")
        return VerbAnswer(keep.note_promote(arguments.what, arguments.to), _describe_promoted)
    changed = keep.note_change(arguments.what, arguments.act, text=arguments.text, reason=arguments.reason)
    return VerbAnswer(changed, _describe_note)


def _describe_promoted(one: dict[str, Any]) -> str:
    said = "was added to" if one["added"] else "is already in"
    return f"{one['id']} {said} {text.line(one['file'])}:{one['line']}. Pages now leave it out, unless it is pinned."


def page(keep: Keep, arguments: Namespace) -> VerbAnswer:
    done = keep.page(project=find_project(keep, arguments) or "", write=arguments.write)
    return VerbAnswer(done, _describe_page, 1 if done.get("problem") else 0)


def _describe_page(done: dict[str, Any]) -> str:
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


def tasks(keep: Keep, arguments: Namespace) -> VerbAnswer:
    project = find_project(keep, arguments)
    found = {"tasks": keep.tasks(project=project)}
    return VerbAnswer(found, lambda data: _explain_unknown_project(keep, project) or _describe_tasks(data))


def _describe_tasks(found: dict[str, Any]) -> str:
    if not found["tasks"]:
        return "No tasks yet. A dream opens one for each session it reads; `dreamkeep task open` opens one by hand."
    rows = [["TASK", "STATE", "INSIGHTS", "TITLE"]]
    rows += [[one["id"], one["state"], str(one["insights"]), text.line(one["title"])] for one in found["tasks"]]
    return text.table(rows)


def task(keep: Keep, arguments: Namespace) -> VerbAnswer:
    check_used(arguments)
    if arguments.act == "open":
        done = keep.task_open(arguments.what, project=find_project(keep, arguments) or "")
    elif arguments.act == "close":
        done = keep.task_close(arguments.what, state="done" if arguments.state is None else arguments.state)
    elif arguments.act == "rename":
        done = keep.task_rename(arguments.what, arguments.title)
    else:
        done = keep.task_show(arguments.what)
    return VerbAnswer(done, _describe_task)


def _describe_task(one: dict[str, Any]) -> str:
    lines = [f"{one['id']}  {one['state']}  {text.line(one['title'])}"]
    return "\n".join([*lines, *(f"  {found['type']}: {text.line(found['text'])}" for found in one["insights"])])
