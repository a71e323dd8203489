"""How a run would change the pages, line by line, and which it would leave alone and why. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import unified_diff
from typing import Any, NamedTuple

from dreamkeep.dream.pages.publish import FOREIGN, NO_ROOM, by_hand, unfit
from dreamkeep.dream.pages.retired import place
from dreamkeep.host import Host, read_file
from dreamkeep.memory import page, page_edits
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import ACTIVE
from dreamkeep.memory.page import PageBudget, is_in_keep


class Previewed(NamedTuple):
    """`edits`: how many edits by hand would be journaled first; what follows from them is not shown."""

    project: str
    path: str
    diff: str
    edits: int = 0
    problem: str = ""


def previewed(
    host: Host, root: str, before: Memory, after: Memory, changed: Collection[str], target: str, budget: PageBudget
) -> list[Previewed]:
    """Pages that would change by what is remembered after a run. `changed`: projects whose notes would change."""
    known = {(str(one["project"]), page.locate(root, str(one["path"]))): one for one in before.pages.values()}
    active = {one.project for memory in (before, after) for one in memory.notes.values() if one.state == ACTIVE}
    places = {*known, *((one, place(root, one, target)) for one in active if one)}
    concerned = [(one, path) for one, path in places if path and ("" in changed or one in changed)]
    found = [_preview(host, root, after, one, path, known.get((one, path)), budget) for one, path in sorted(concerned)]
    return [one for one in found if one is not None]


def _preview(
    host: Host, root: str, after: Memory, project: str, path: str, last: Mapping[str, Any] | None, budget: PageBudget
) -> Previewed | None:
    """None: it stays as it is. One that can't be read is reported, and hides no other."""
    try:
        at = host.stat(path)
        data = read_file(host, path) if at is not None and at.is_file else b""
    except OSError as problem:
        return Previewed(project, path, "", problem=f"it can't be read: {problem}")
    found = page.parse(data.decode("utf-8", "surrogateescape"))
    if found.region is None and not found.problem and not is_in_keep(root, path):
        return None
    why = unfit(data, found) if at is None or at.is_file else "a page must be a file"
    if last and found.region is not None and not why and page_edits.is_foreign(last, found.region, after.notes):
        why = FOREIGN
    return Previewed(project, path, "", problem=why) if why else _changed(host, root, after, project, path, last, found, budget)


def _changed(
    host: Host,
    root: str,
    after: Memory,
    project: str,
    path: str,
    last: Mapping[str, Any] | None,
    found: page.ParsedPage,
    budget: PageBudget,
) -> Previewed | None:
    text = f"{found.before}{found.region or ''}{found.after}"
    hand = by_hand(host, root, last, path, found.region).edits if last and found.region is not None else []
    edits = list(page_edits.keep_user_words(hand, after.notes))
    mark = page.fence_owner(str(last.get("region", ""))) if last else ""
    made = page.render(after.notes.values(), project, page.remaining_budget(text, budget), mark)
    if not made.text and found.region is None and text:
        return Previewed(project, path, "", problem=NO_ROOM)
    old = str(last.get("region", "")).splitlines() if last else []
    new = made.text.splitlines() if made.notes or text else []
    diff = "\n".join(unified_diff(old, new, "before", "after", lineterm="", n=1)) if new else ""
    return Previewed(project, path, diff, len(edits)) if diff or edits else None
