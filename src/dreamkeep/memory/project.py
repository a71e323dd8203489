"""What projects are called, where somebody renamed or merged them by hand, or `ingest` found a worktree's repository. Pure.

    names: a name that was given up → the name that stands for it now

A session's journal keeps the name that was found at its capture; this says under which name it is shown. What stands for others
is never itself given up, so looking a name up once is enough, and looking it up twice changes nothing: an index that follows the
journal and one that is built from zero agree.

A correction by `ingest` is such a renaming, too, and not an event of each session: notes, pages and later sessions follow it, and
one event undoes it. It counts less than anybody's word: a name that was given up already stays given up, and two projects that
somebody keeps apart stay two.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Who says in a renaming that nobody asked for it: a folder turned out to be a worktree of a repository.
BY_INGEST = "ingest"


def pair_key(one: str, other: str) -> str:
    """Two projects as one key, whichever is named first."""
    return "\0".join(sorted((one, other)))


def add_renaming(names: Mapping[str, str], was: str, now: str) -> dict[str, str]:
    """After `was` became `now`: renamed, or merged into it. Renaming something back gives up the other name."""
    was = names.get(was, was)
    if names.get(now, was) != was:
        now = names[now]
    if not was or not now or was == now:
        return dict(names)
    moved = {old: now if name == was else name for old, name in names.items()} | {was: now}
    moved.pop(now, None)
    return moved
