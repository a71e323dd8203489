"""Part of app: projects, their names, and which of them are one. Wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, DreamkeepError, NotFound, from_os

if TYPE_CHECKING:
    from dreamkeep.capture.same_project import Offer
    from dreamkeep.memory.memory import Memory
    from dreamkeep.session.folders import Place

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
        return self._called(self._name_of_folder(text))

    def _name_of_folder(self, text: str) -> str:
        """A folder's project, as it is found there; other names as they are."""
        if not text.startswith(("/", "~", ".")):
            return text
        from dreamkeep.capture.project import project_of

        return project_of(self._host, os.path.abspath(os.path.expanduser(text)), os.uname().nodename)

    def _called(self, name: str) -> str:
        return self._remembering(lambda memory: memory.called(name)) if name and self.exists() else name

    def project_rename(self, project: str, name: str) -> dict[str, Any]:
        """Everything of a project, what is there and what comes, is shown under that name from now on."""
        was, now = self._known(project), _shown(name.strip())
        if was != now and self._is_known(now):
            raise BadUsage(f"a project {now!r} already exists", where="project rename", next="Merge them with `project merge`.")
        return self._rename(was, now)

    def project_merge(self, project: str, into: str) -> dict[str, Any]:
        """Two projects are one: what is there, and what comes, of either."""
        return self._rename(self._known(project), _shown(self._known(into)))

    def _rename(self, was: str, now: str) -> dict[str, Any]:
        if not now or now.startswith(("~", ".")) or was == now:
            what = "that is already its name" if was == now else f"{now!r} can't be the name of a project"
            raise BadUsage(what, where="project", next="Give another name, such as example.org/you/tool.")
        self._journal_renamings([{"was": was, "now": now}])
        return self._changed(was, now)

    def _journal_renamings(self, renamings: Sequence[dict[str, str]]) -> None:
        from dreamkeep.event import Event, Kind, rfc3339

        at = rfc3339(self._host.now())
        events = [Event(self._ids.new(), Kind.PROJECT_RENAMED, at, dict(one)) for one in renamings]
        self._change_pages(lambda: self._journals().append("", events), {one["was"] for one in renamings})

    def _change_pages(self, act: Callable[[], object], old: Collection[str]) -> None:
        """Pages follow the names. `old`: projects whose pages nobody asks for any more."""
        if self._pages_differ():
            self._publish("")  # what was edited by hand is still of the page that it was edited in
        act()
        for project in old:
            self._withdraw_page(project)
        self._publish("")

    def _changed(self, was: str, now: str) -> dict[str, Any]:
        notes = self._remembering(lambda memory: len(memory.marks.get(now, {}).get("active", ())))
        return {"project": now, "was": was, "sessions": len(self._sessions_of(now)), "notes": notes}

    def project_undo(self, project: str) -> dict[str, Any]:
        """Take back that a project was renamed or merged, by hand or by `ingest`; no later `ingest` does it again."""
        from dreamkeep.event import Kind

        was = self._name_of_folder(project)
        known = self._memory("projects").projects.get(was)
        if known is None:
            raise NotFound(
                f"no project {project!r} was renamed or merged",
                where="project undo",
                next="Give its old name; `dreamkeep projects` lists the projects.",
            )
        body = {"renaming": known["by"], "was": was, "now": known["now"]}
        self._change_pages(lambda: self._journals().say("", Kind.PROJECT_UNDONE, body), ())
        if not self._is_known(known["now"]):
            self._withdraw_page(known["now"])
        return self._changed(known["now"], was)

    # -- which are one

    def projects(self) -> list[dict[str, Any]]:
        """All projects, the one that was worked in last first. `merged`: names that were given up for this one."""
        from dreamkeep.memory.note import ACTIVE

        memory = self._memory("notes", "projects")
        found: dict[str, dict[str, Any]] = {}

        def row(name: str) -> dict[str, Any]:
            return found.setdefault(name, {"name": name, "sessions": 0, "notes": 0, "last_at": None, "merged": []})

        for one in self._ask(lambda store: store.sessions()):
            row(one.project)["sessions"] += 1
            row(one.project)["last_at"] = max(row(one.project)["last_at"] or "", one.last_at or "") or None
        for note in memory.notes.values():
            row(note.project)["notes"] += note.state == ACTIVE
        for was, known in sorted(memory.projects.items()):
            if known["now"] in found:
                row(known["now"])["merged"].append({"name": was, "why": known["why"]})
        found.pop("", None)
        return sorted(sorted(found.values(), key=lambda one: one["name"]), key=lambda one: one["last_at"] or "", reverse=True)

    def project_offers(self) -> list[dict[str, str]]:
        """Projects that may be the same as another: to be accepted (`project_merge`) or rejected (`project_apart`)."""
        from dreamkeep.capture.same_project import offers
        from dreamkeep.memory.insight import digest

        memory = self._memory("projects", "apart")
        apart = {(str(one["was"]), str(one["now"])) for one in memory.apart.values()}

        def shown(one: Offer) -> dict[str, str]:
            id = f"p-{digest(one.source, one.into)[:12]}"
            return {"id": id, "from": one.source, "into": one.into, "why": one.why, "session": one.session, "seq": one.seq}

        return [shown(one) for one in offers(self._places(), home=_home(), called=memory.called, apart=apart)]

    def project_apart(self, project: str, other: str) -> dict[str, Any]:
        """These are two projects: that they are one is neither offered nor found by `ingest` any more."""
        from dreamkeep.event import Kind

        one, two = self._known(project), self._known(other)
        if one == two:
            next_ = f"Undo the merge first: `dreamkeep project undo {project}`."
            raise BadUsage("these are the same project", where="project apart", next=next_)
        self._journals().say("", Kind.PROJECT_APART, {"was": one, "now": two})
        return {"project": one, "apart": two}

    def correct_projects(self) -> list[dict[str, str]]:
        """Sessions that were read when their worktree was gone go to their repository's project; what was changed. Of nobody who
        captures it is the failure when that can't be done now: only a warning."""
        from dreamkeep.capture.same_project import corrections
        from dreamkeep.capture.worktrees import Disk
        from dreamkeep.memory.project import BY_INGEST

        if not self.exists():
            return []
        machine = os.uname().nodename
        try:
            memory = self._memory("projects", "apart")
            by_hand = {str(one["now"]) for one in memory.projects.values() if not one["auto"]}
            undone = {str(one["was"]) for one in memory.apart.values() if one["undone"]}
            found = corrections(
                self._places(),
                Disk(self._host, machine),
                machine=machine,
                home=_home(),
                called=memory.called,
                settled=by_hand | undone,
            )
            found = [one for one in found if not memory.is_apart(one.was, one.now)]
            if found:
                self._journal_renamings([{**one._asdict(), "by": BY_INGEST} for one in found])
        except (DreamkeepError, OSError) as problem:
            self.warn(f"Everything is safe, but the projects of worktrees or their pages could not be corrected: {problem}")
            return []
        return [one._asdict() for one in found]

    def _places(self) -> list[Place]:
        return self._ask(lambda store: store.session_places())

    def _withdraw_page(self, project: str) -> None:
        from dreamkeep.dream.publish import alone
        from dreamkeep.dream.retired import place, withdraw

        path = place(self.root, project, self.config["page.target"])
        try:
            with alone(self._host, self.root):
                withdraw(self._host, path)
        except OSError as problem:
            raise from_os(problem, "removing the old page", path) from problem

    def _known(self, text: str) -> str:
        found = self._project_of(text)
        if not found:
            raise BadUsage("the project name is empty", where="project", next="`dreamkeep projects` lists them.")
        if not self._is_known(found):
            raise NotFound(f"no project {text!r}", where="project", next="`dreamkeep projects` lists them.")
        return found

    def _is_known(self, name: str) -> bool:
        if self._sessions_of(name, limit=1):
            return True
        memory = self._memory("notes", "tasks", "insights")
        return any(one.project == name for table in (memory.notes, memory.tasks, memory.insights) for one in table.values())

    def _sessions_of(self, project: str, limit: int | None = None) -> Sequence[Any]:
        return self._ask(lambda store: store.sessions(project=project, limit=limit))


def _home() -> str:
    return os.path.expanduser("~")


def _shown(name: str) -> str:
    """Nothing that makes two lines of one, or is the terminal's to obey."""
    if not name.isprintable():
        raise BadUsage(
            f"{name!r} can't be the name of a project: it contains a line feed, a control or an invisible character",
            where="project",
            next="Give a one-line name of visible characters, such as example.org/you/tool.",
        )
    return name
