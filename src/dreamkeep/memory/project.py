"""The names of projects that somebody renamed or merged, or for which `ingest` found a worktree's repository. Pure.

    names: old name → the name that stands for it now

A session's journal keeps the name that was found at its capture; this says under which name it is shown. A name that stands for
others is never an old name itself. So one lookup is enough and a second one changes nothing, and an index that follows the
journal agrees with one that is built from zero.

A correction by `ingest` is such a renaming too, and not an event of each session: notes, pages and later sessions follow it, and
one event undoes it. It counts less than anybody's word: what was renamed already stays so, and two projects that somebody keeps
apart stay two.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The author of a renaming that nobody asked for: a folder turned out to be a worktree of a repository.
BY_INGEST = "ingest"


def pair_key(one: str, other: str) -> str:
    """Two projects as one key, whichever is named first."""
    return "\0".join(sorted((one, other)))


def add_renaming(names: Mapping[str, str], was: str, now: str) -> dict[str, str]:
    """The names after `was` became `now`: renamed, or merged into it. Renaming something back makes the other name the old
    one."""
    was = names.get(was, was)
    if names.get(now, was) != was:
        now = names[now]
    if not was or not now or was == now:
        return dict(names)
    moved = {old: now if name == was else name for old, name in names.items()} | {was: now}
    moved.pop(now, None)
    return moved
