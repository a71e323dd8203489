"""Restoring: a session goes back to its agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import from_os
from dreamkeep.verbs.arguments import check_positive, resolve_session

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext


def restore(
    context: KeepContext,
    session: str,
    to: str,
    *,
    home: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    generation: int | None = None,
    convert: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    from dreamkeep.recovery.restore import places as where_to
    from dreamkeep.recovery.restore import restore

    if generation is not None:
        check_positive(generation, "generation")
    found = resolve_session(context, session)
    stored = context.ask(
        lambda store: restore.load_session(store, found, lambda: context.ask(lambda again: again.messages(found)))
    )
    where, _ = context.find_home(home)
    folder = os.path.abspath(os.path.expanduser(os.fspath(cwd))) if cwd is not None else ""
    place = where_to.Home(where, home is not None, context.environment)
    try:
        request = restore.RestoreRequest(to, place, generation, convert, folder, dry_run)
        return restore.restore(context.host, context.root, stored, request)
    except OSError as problem:
        raise from_os(problem, "restoring", str(problem.filename or where)) from problem
