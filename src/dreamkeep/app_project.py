"""Part of app: what projects are called, by hand. Wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, NotFound, from_os

if TYPE_CHECKING:
    from dreamkeep.memory.memory import Memory

T = TypeVar("T")


class Naming(Part):
    """What `Keep` can do with projects' names."""

    if TYPE_CHECKING:

        def _memory(self, *tables: str) -> Memory: ...

        def _remembering(self, act: Callable[[Memory], T]) -> T: ...

        def _pages_differ(self) -> bool: ...

        def _publish(self, run: str) -> list[dict[str, Any]]: ...

    def project_named(self, text: str) -> str:
        """A project's name as it is called now: from a name it has or had, or from the path of a folder in it."""
        return self._project_of(text)

    def _project_of(self, text: str) -> str:
        if text.startswith(("/", "~", ".")):
            from dreamkeep.capture.project import project_of

            text = project_of(self._host, os.path.abspath(os.path.expanduser(text)), os.uname().nodename)
        return self._called(text)

    def _called(self, name: str) -> str:
        return self._remembering(lambda memory: memory.called(name)) if name and self.exists() else name

    def project_rename(self, project: str, name: str) -> dict[str, Any]:
        """Everything of a project, what is there and what comes, is shown under that name from now on."""
        was, now = self._known(project), _shown(name.strip())
        if was != now and self._is_known(now):
            raise BadUsage(f"there is a project {now!r}", where="project rename", next="To make one of the two: `project merge`.")
        return self._rename(was, now)

    def project_merge(self, project: str, into: str) -> dict[str, Any]:
        """Two projects are one: what is there, and what comes, of either."""
        return self._rename(self._known(project), _shown(self._known(into)))

    def _rename(self, was: str, now: str) -> dict[str, Any]:
        from dreamkeep.event import Kind

        if not now or now.startswith(("~", ".")) or was == now:
            what = "that is what it is called" if was == now else f"{now!r} is no name for a project"
            raise BadUsage(what, where="project", next="Give another name, for instance example.org/you/tool.")
        if self._pages_differ():
            self._publish("")  # what was edited by hand is still of the page that it was edited in
        self._journals().say("", Kind.PROJECT_RENAMED, {"was": was, "now": now})
        self._withdraw_page(was)
        self._publish("")
        notes = self._remembering(lambda memory: len(memory.marks.get(now, {}).get("active", ())))
        return {"project": now, "was": was, "sessions": len(self._sessions_of(now)), "notes": notes}

    def _withdraw_page(self, project: str) -> None:
        from dreamkeep.dream.publish import alone
        from dreamkeep.dream.retired import place, withdraw

        path = place(self.root, project, self.config["page.target"])
        try:
            with alone(self._host, self.root):
                withdraw(self._host, path)
        except OSError as problem:
            raise from_os(problem, "taking the old page away", path) from problem

    def _known(self, text: str) -> str:
        found = self._project_of(text)
        if not found:
            raise BadUsage("which project? The name is empty", where="project", next="`dreamkeep sessions --json` tells of each.")
        if not self._is_known(found):
            raise NotFound(f"there is no project {text!r}", where="project", next="`dreamkeep sessions --json` tells of each.")
        return found

    def _is_known(self, name: str) -> bool:
        if self._sessions_of(name, limit=1):
            return True
        memory = self._memory("notes", "tasks", "insights")
        return any(one.project == name for table in (memory.notes, memory.tasks, memory.insights) for one in table.values())

    def _sessions_of(self, project: str, limit: int | None = None) -> Sequence[Any]:
        return self._ask(lambda store: store.sessions(project=project, limit=limit))


def _shown(name: str) -> str:
    """Nothing that makes two lines of one, or is the terminal's to obey."""
    if not name.isprintable():
        raise BadUsage(
            f"{name!r} is no name for a project: a line feed, a control or another sign that can't be seen is in it",
            where="project",
            next="Give a name of one line and of signs that can be seen, for instance example.org/you/tool.",
        )
    return name
