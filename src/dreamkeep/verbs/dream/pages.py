"""Pages: the notes as MEMORY.md files that people may edit."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import DreamkeepError, from_os
from dreamkeep.verbs.recall.packs import render_packs

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.dream.pages.publish import Publishing
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.page import PageBudget


def page(context: KeepContext, *, project: str = "", write: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    from dreamkeep.memory.page import is_in_keep, render

    if write is not None:
        from dreamkeep.dream.pages.publish import Published, lock_pages
        from dreamkeep.verbs.arguments import check_folder_exists

        path = os.path.abspath(os.fspath(write))
        if not context.exists():
            return Published(project, path)._asdict()  # nothing is remembered, and no keep is made for that
        try:
            if not is_in_keep(context.root, path):
                check_folder_exists(context.host, path)
            with lock_pages(context.host, context.root):
                return context.ask_memory(lambda memory: _open_publishing(context, memory).publish(project, path)._asdict())
        except OSError as problem:
            raise from_os(problem, "writing the page", path) from problem
    made = context.ask_memory(lambda memory: render(memory.active_notes(project), project, _read_budget(context)))
    left = [one._asdict() for one in made.left_out]
    return {"project": project, "text": made.text, "notes": list(made.notes), "left_out": left}


def preview_pages(context: KeepContext, before: Memory, after: Memory) -> dict[str, Any]:
    """What a run would change: notes by their id, and the pages line by line."""
    from dreamkeep.dream.pages.preview import previewed

    changed = [one for id, one in sorted(after.notes.items()) if before.notes.get(id) != one]
    notes = [{"id": one.id, "kind": one.kind, "state": one.state, "text": one.text} for one in changed]
    # Also projects whose pages were edited by hand: those edits are applied first.
    projects = {one.project for one in changed} | {project for project, _ in _find_differing(context, before)}
    pages = previewed(context.host, context.root, before, after, projects, context.config["page.target"], _read_budget(context))
    return {"notes": notes, "pages": [one._asdict() for one in pages]}


def take_in_edits(context: KeepContext) -> list[dict[str, Any]]:
    """Apply hand edits, before something new is recorded. Doesn't warn of a page that can't be written: the caller publishes
    afterwards, and that warns."""
    from dreamkeep.dream.pages.publish import touched

    if not context.exists() or not context.ask_memory(lambda memory: touched(context.host, context.root, memory)):
        return []
    return _publish_with(context, "", lambda what: None)


def watch_edits(context: KeepContext) -> Callable[[], list[dict[str, Any]]]:
    """Returns a function that applies the hand edits since its last call. A dream calls it before each session, so it looks
    at the pages' stats first. It reports as a publication does."""
    from dreamkeep.dream.pages.publish import stamps
    from dreamkeep.memory.page import locate

    seen: dict[str, int] | None = None

    def paths(memory: Memory) -> list[str]:
        return [path for one in memory.pages.values() if (path := locate(context.root, str(one["path"])))]

    def apply_edits() -> list[dict[str, Any]]:
        nonlocal seen
        try:
            now = stamps(context.host, context.ask_memory(paths) if seen is None else seen)
            if now == seen:
                return []
            seen = now  # not the stats afterwards: somebody may edit in between
            return take_in_edits(context)
        except (DreamkeepError, OSError) as problem:
            context.warn(f"Hand edits on the pages will be applied later: {problem}")
            return []

    return apply_edits


def publish_pages(context: KeepContext, run: str) -> list[dict[str, Any]]:
    """Write all pages that are not up to date: of every project with notes, and every file that was ever a page."""
    return _publish_with(context, run, context.warn)


def _publish_with(context: KeepContext, run: str, warn: Callable[[str], object]) -> list[dict[str, Any]]:
    from dreamkeep.dream.pages.publish import lock_pages
    from dreamkeep.memory.page import FOLDER

    context.settle_deletions()  # it writes pages itself, and would wait for the lock taken below
    try:
        with lock_pages(context.host, context.root):
            return context.ask_memory(lambda memory: _publish_each(context, memory, run, warn))
    except (DreamkeepError, OSError) as problem:
        warn(f"The pages can't be written now; the next dream writes them: {problem}")
        return [_report_unwritten("", f"{context.root}/{FOLDER}", str(problem))]
    finally:
        render_packs(context)  # the notes have changed, so the packs have, too


def publish_before_deletion(context: KeepContext, sessions: Collection[str]) -> None:
    """Apply hand edits before these sessions are deleted: afterwards nobody can tell our lines of a page from others."""
    from dreamkeep.dream.pages.publish import lock_pages
    from dreamkeep.memory.page import is_in_keep

    left = [one for one in publish_pages(context, "") if one["problem"] and is_in_keep(context.root, one["path"])]

    def take(memory: Memory) -> None:
        for one, session in ((one, session) for one in left for session in sessions):
            _open_publishing(context, memory).take_reworded(one["project"], one["path"], session)

    if left:
        with lock_pages(context.host, context.root):
            context.ask_memory(take)


def publish_without_deleted(context: KeepContext) -> list[tuple[str, str]]:
    """Publish after a deletion. Returns (path, why) of the keep's own pages that may still have lines of a deleted session;
    for files elsewhere, which belong to their users, it only warns."""
    from dreamkeep.dream.pages.publish import still_holding
    from dreamkeep.memory.page import is_in_keep

    why = {one["path"]: one["problem"] for one in publish_pages(context, "") if one["problem"]}
    holding = context.ask_memory(lambda memory: still_holding(context.host, context.root, memory))
    for path in (one for one in holding if not is_in_keep(context.root, one)):
        context.warn(
            f"The file {path} is outside the keep and has lines of the deleted session. "
            "Once it is writable and its fence is intact, the next dream removes them."
        )
    held = [(one, why.get(one, "the pages can't be written")) for one in holding if is_in_keep(context.root, one)]
    return held + _retire_pages(context)


def _retire_pages(context: KeepContext) -> list[tuple[str, str]]:
    """(path, why) of files among the pages that belong to no project any more and may have lines of a deleted session."""
    from dreamkeep.dream.pages.publish import lock_pages
    from dreamkeep.dream.pages.retired import left_over

    def retired(memory: Memory) -> list[tuple[str, str]]:
        return [(path, why) for path in left_over(context.host, context.root, memory) if (why := _retire(context, memory, path))]

    with lock_pages(context.host, context.root):
        return context.ask_memory(retired)


def _retire(context: KeepContext, memory: Memory, path: str) -> str:
    try:
        return _open_publishing(context, memory).retire(path)
    except (DreamkeepError, OSError) as problem:
        return str(problem)


def _publish_each(context: KeepContext, memory: Memory, run: str, warn: Callable[[str], object]) -> list[dict[str, Any]]:
    from dreamkeep.dream.pages.retired import given_up

    for path in given_up(context.host, context.root, memory):
        if why := _retire(context, memory, path):
            warn(f"The page {path} of an old project name was not changed: {why}")
    publishing = _open_publishing(context, memory)
    done: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(2):  # a hand edit on one page also changes the project's other pages
        left_alone = {one for one, report in done.items() if report["problem"]}
        edits = 0
        for project, path in [one for one in _find_differing(context, memory) if one not in left_alone]:
            report = _publish_page(context, publishing, project, path, run, warn)
            edits += report["edits"]
            done[project, path] = add_earlier(done.get((project, path)), report)
        if not edits:
            break
    return [done[one] for one in sorted(done)]


def _publish_page(
    context: KeepContext, publishing: Publishing, project: str, path: str, run: str, warn: Callable[[str], object]
) -> dict[str, Any]:
    """A page that can't be written is only a warning: the notes are safe, and the other pages are written."""
    try:
        report = publishing.publish(project, path, run, asked=False)._asdict()
        if report["problem"]:
            warn(f"The page {path} was not written: {report['problem']}")
        return report
    except (DreamkeepError, OSError) as problem:
        why = _find_block(context, path) or str(problem)
        warn(f"The page {path} can't be written: {why}")
        return _report_unwritten(project, path, why)


def _find_block(context: KeepContext, path: str) -> str:
    """Why no page at all can be written in the keep; "" if that is not the problem."""
    from dreamkeep.memory.page import FOLDER, is_in_keep

    folder = f"{context.root}/{FOLDER}"
    at = context.host.stat(folder) if is_in_keep(context.root, path) else None
    if at is None or not at.is_file:
        return ""
    return f"a file is in the place of the pages' folder ({folder}). Move it away; the next dream creates the folder."


def _open_publishing(context: KeepContext, memory: Memory) -> Publishing:
    from dreamkeep.dream.pages.publish import Publishing

    append = context.journals().append
    ours = (context.ids, _read_budget(context))
    return Publishing(context.host, context.root, memory, lambda events: append("", events), *ours)


def _read_budget(context: KeepContext) -> PageBudget:
    from dreamkeep.memory.page import PageBudget

    config = context.config
    return PageBudget(config["page.max_lines"], config["page.max_bytes"], config["page.max_tokens"])


def _find_differing(context: KeepContext, memory: Memory) -> list[tuple[str, str]]:
    from dreamkeep.dream.pages.publish import differing

    return differing(context.host, context.root, memory, context.config["page.target"], _read_budget(context))


def pages_differ(context: KeepContext) -> bool:
    """Whether a page is not up to date, or exists and should not."""
    from dreamkeep.dream.pages.retired import given_up

    return context.ask_memory(
        lambda memory: bool(_find_differing(context, memory) or given_up(context.host, context.root, memory))
    )


def _report_unwritten(project: str, path: str, problem: str) -> dict[str, Any]:
    from dreamkeep.dream.pages.publish import Published

    return Published(project, path, problem=problem)._asdict()


def add_earlier(before: dict[str, Any] | None, report: dict[str, Any]) -> dict[str, Any]:
    """One report of a page that was written twice."""
    if before is None:
        return report
    return {**report, "changed": before["changed"] or report["changed"], "edits": before["edits"] + report["edits"]}
