"""Projects: list, rename, merge and separate them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.errors import BadUsage, DreamkeepError, NotFound, from_os
from dreamkeep.verbs.arguments import find_folder_project, find_project
from dreamkeep.verbs.dream.pages import pages_differ, publish_pages

if TYPE_CHECKING:
    from dreamkeep.capture.projects.same_project import Offer
    from dreamkeep.context import KeepContext
    from dreamkeep.session.folders import SessionPlace

T = TypeVar("T")


def project_rename(context: KeepContext, project: str, name: str) -> dict[str, Any]:
    was, now = _find_known(context, project), _check_name(name.strip())
    if was != now and _is_known(context, now):
        raise BadUsage(f"a project {now!r} already exists", where="project rename", next="Merge them with `project merge`.")
    return _rename(context, was, now)


def project_merge(context: KeepContext, project: str, into: str) -> dict[str, Any]:
    return _rename(context, _find_known(context, project), _check_name(_find_known(context, into)))


def _rename(context: KeepContext, was: str, now: str) -> dict[str, Any]:
    if not now or now.startswith(("~", ".")) or was == now:
        what = "that is already its name" if was == now else f"{now!r} can't be the name of a project"
        raise BadUsage(what, where="project", next="Give another name, such as example.org/you/tool.")
    _journal_renamings(context, [{"was": was, "now": now}])
    return _report_change(context, was, now)


def _journal_renamings(context: KeepContext, renamings: Sequence[dict[str, str]]) -> None:
    from dreamkeep.event import Event, Kind, rfc3339

    at = rfc3339(context.host.now())
    events = [Event(context.ids.new(), Kind.PROJECT_RENAMED, at, dict(one)) for one in renamings]
    _change_pages(context, lambda: context.journals().append("", events), {one["was"] for one in renamings})


def _change_pages(context: KeepContext, act: Callable[[], object], old: Collection[str]) -> None:
    """Make a change of names, and publish the pages for the new names. `old`: projects whose pages are withdrawn."""
    if pages_differ(context):
        publish_pages(context, "")  # apply hand edits while their page still has its old name
    act()
    for project in old:
        _withdraw_page(context, project)
    publish_pages(context, "")


def _report_change(context: KeepContext, was: str, now: str) -> dict[str, Any]:
    notes = context.ask_memory(lambda memory: len(memory.marks.get(now, {}).get("active", ())))
    return {"project": now, "was": was, "sessions": len(_list_sessions(context, now)), "notes": notes}


def project_undo(context: KeepContext, project: str) -> dict[str, Any]:
    from dreamkeep.event import Kind

    was = find_folder_project(context, project)
    known = context.load_memory("projects").projects.get(was)
    if known is None:
        raise NotFound(
            f"no project {project!r} was renamed or merged",
            where="project undo",
            next="Give its old name; `dreamkeep projects` lists the projects.",
        )
    body = {"renaming": known["by"], "was": was, "now": known["now"]}
    _change_pages(context, lambda: context.journals().say("", Kind.PROJECT_UNDONE, body), ())
    if not _is_known(context, known["now"]):
        _withdraw_page(context, known["now"])
    return _report_change(context, known["now"], was)


# -- which are one


def projects(context: KeepContext) -> list[dict[str, Any]]:
    from dreamkeep.memory.note import ACTIVE

    memory = context.load_memory("notes", "projects")
    found: dict[str, dict[str, Any]] = {}

    def row(name: str) -> dict[str, Any]:
        return found.setdefault(name, {"name": name, "sessions": 0, "notes": 0, "last_at": None, "merged": []})

    for one in context.ask(lambda store: store.sessions()):
        row(one.project)["sessions"] += 1
        row(one.project)["last_at"] = max(row(one.project)["last_at"] or "", one.last_at or "") or None
    for note in memory.notes.values():
        row(note.project)["notes"] += note.state == ACTIVE
    for was, known in sorted(memory.projects.items()):
        if known["now"] in found:
            row(known["now"])["merged"].append({"name": was, "why": known["why"]})
    found.pop("", None)
    return sorted(sorted(found.values(), key=lambda one: one["name"]), key=lambda one: one["last_at"] or "", reverse=True)


def project_offers(context: KeepContext) -> list[dict[str, str]]:
    from dreamkeep.capture.projects.same_project import offers
    from dreamkeep.memory.insight import digest

    memory = context.load_memory("projects", "apart")
    apart = {(str(one["was"]), str(one["now"])) for one in memory.apart.values()}

    def shown(one: Offer) -> dict[str, str]:
        id = f"p-{digest(one.source, one.into)[:12]}"
        return {"id": id, "from": one.source, "into": one.into, "why": one.why, "session": one.session, "seq": one.seq}

    return [shown(one) for one in offers(_list_places(context), home=_find_home(), called=memory.current_project, apart=apart)]


def project_apart(context: KeepContext, project: str, other: str) -> dict[str, Any]:
    from dreamkeep.event import Kind

    one, two = _find_known(context, project), _find_known(context, other)
    if one == two:
        next_ = f"Undo the merge first: `dreamkeep project undo {project}`."
        raise BadUsage("these are the same project", where="project apart", next=next_)
    context.journals().say("", Kind.PROJECT_APART, {"was": one, "now": two})
    return {"project": one, "apart": two}


def correct_projects(context: KeepContext) -> list[dict[str, str]]:
    from dreamkeep.capture.projects.same_project import corrections
    from dreamkeep.capture.projects.worktrees import Disk
    from dreamkeep.memory.project import BY_INGEST

    if not context.exists():
        return []
    machine = os.uname().nodename
    try:
        memory = context.load_memory("projects", "apart")
        by_hand = {str(one["now"]) for one in memory.projects.values() if not one["auto"]}
        undone = {str(one["was"]) for one in memory.apart.values() if one["undone"]}
        found = corrections(
            _list_places(context),
            Disk(context.host, machine),
            machine=machine,
            home=_find_home(),
            called=memory.current_project,
            settled=by_hand | undone,
        )
        found = [one for one in found if not memory.is_apart(one.was, one.now)]
        if found:
            _journal_renamings(context, [{**one._asdict(), "by": BY_INGEST} for one in found])
    except (DreamkeepError, OSError) as problem:
        context.warn(f"Everything is safe, but the projects of worktrees or their pages could not be corrected: {problem}")
        return []
    return [one._asdict() for one in found]


def _list_places(context: KeepContext) -> list[SessionPlace]:
    return context.ask(lambda store: store.session_places())


def _withdraw_page(context: KeepContext, project: str) -> None:
    from dreamkeep.dream.pages.publish import lock_pages
    from dreamkeep.dream.pages.retired import place, withdraw

    path = place(context.root, project, context.config["page.target"])
    try:
        with lock_pages(context.host, context.root):
            withdraw(context.host, path)
    except OSError as problem:
        raise from_os(problem, "removing the old page", path) from problem


def _find_known(context: KeepContext, text: str) -> str:
    found = find_project(context, text)
    if not found:
        raise BadUsage("the project name is empty", where="project", next="`dreamkeep projects` lists them.")
    if not _is_known(context, found):
        raise NotFound(f"no project {text!r}", where="project", next="`dreamkeep projects` lists them.")
    return found


def _is_known(context: KeepContext, name: str) -> bool:
    if _list_sessions(context, name, limit=1):
        return True
    memory = context.load_memory("notes", "tasks", "insights")
    return any(one.project == name for table in (memory.notes, memory.tasks, memory.insights) for one in table.values())


def _list_sessions(context: KeepContext, project: str, limit: int | None = None) -> Sequence[Any]:
    return context.ask(lambda store: store.sessions(project=project, limit=limit))


def _find_home() -> str:
    return os.path.expanduser("~")


def _check_name(name: str) -> str:
    """Refuse a name with line feeds or control characters."""
    if not name.isprintable():
        raise BadUsage(
            f"{name!r} can't be the name of a project: it contains a line feed, a control or an invisible character",
            where="project",
            next="Give a one-line name of visible characters, such as example.org/you/tool.",
        )
    return name
