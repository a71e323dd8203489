"""Tasks: list, open, close, rename and show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.event import Kind

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext


def tasks(context: KeepContext, *, project: str | None = None) -> list[dict[str, Any]]:
    memory = context.load_memory("tasks", "insights")
    counts: dict[str, int] = {}
    for one in memory.insights.values():
        counts[one.task] = counts.get(one.task, 0) + 1
    found = [one for one in memory.tasks.values() if project in (None, one.project)]
    found.sort(key=lambda one: (one.opened_at or "", one.id), reverse=True)
    return [{**one.as_json(), "insights": counts.get(one.id, 0)} for one in found]


def task_open(context: KeepContext, title: str, *, project: str = "") -> dict[str, Any]:
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.memory.insight import task_id

    words = redacted(" ".join(title.split()))
    if not words:
        raise BadUsage("the task has no title", where="task open", next="Give it a title.")
    id = task_id(context.ids.new())
    context.journals().say("", Kind.TASK_OPENED, {"id": id, "title": words, "project": project})
    return task_show(context, id)


def task_close(context: KeepContext, task: str, *, state: str = "done") -> dict[str, Any]:
    from dreamkeep.memory.task import OPEN, STATES

    found = task_show(context, task)
    if state not in STATES or state == OPEN:
        ways = ", ".join(one for one in STATES if one != OPEN)
        raise BadUsage(f"a task can't be closed as {state!r}", where="--state", next=f"Use one of {ways}.")
    context.journals().say("", Kind.TASK_CLOSED, {**_describe_task(found), "state": state, "reason": "by the user"})
    return task_show(context, found["id"])


def task_rename(context: KeepContext, task: str, title: str) -> dict[str, Any]:
    from dreamkeep.dream.assemble import redacted

    found = task_show(context, task)
    words = redacted(" ".join(title.split()))
    if not words:
        raise BadUsage("the task has no title", where="task rename", next="Give it a title.")
    context.journals().say("", Kind.TASK_RENAMED, {**_describe_task(found), "title": words})
    return task_show(context, found["id"])


def task_show(context: KeepContext, task: str) -> dict[str, Any]:
    memory = context.load_memory("tasks", "insights")
    found = [one for one in memory.tasks if one == task] or [one for one in memory.tasks if task and one.startswith(task)]
    if len(found) != 1:
        what = "no task" if not found else f"{len(found)} tasks begin with"
        raise NotFound(f"{what} {task!r}", where="task", next="`dreamkeep tasks` lists them.")
    rests = [one.as_json() for one in memory.insights.values() if one.task == found[0]]
    return {**memory.tasks[found[0]].as_json(), "insights": rests}


def _describe_task(found: dict[str, Any]) -> dict[str, Any]:
    """The task with its content: if the run that made it is undone, the user's change to it stays."""
    return {key: found[key] for key in ("id", "title", "project", "sessions", "opened_at")}
