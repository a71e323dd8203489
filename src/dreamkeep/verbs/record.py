"""Recording: sessions of one's own agents, and their lifecycle by hand. Wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from dreamkeep.errors import BadUsage
from dreamkeep.verbs.arguments import resolve_session

if TYPE_CHECKING:
    from dreamkeep.capture.items import Items
    from dreamkeep.capture.python import Session
    from dreamkeep.context import KeepContext
    from dreamkeep.session.summary import Summary
    from dreamkeep.verbs.sessions import SessionVerbs


class RecordVerbs:
    """Sessions that Python code records."""

    def __init__(self, context: KeepContext, sessions: SessionVerbs) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._sessions = sessions

    def session(
        self, native_id: str, *, agent: str = "python", cwd: str | os.PathLike[str] | None = None, title: str = ""
    ) -> Session:
        from dreamkeep.journal.places import session_id

        handle = self.open_session(session_id(agent, native_id))
        handle.open(self._describe_session(cwd, title))
        return handle

    def items(
        self, native_id: str, *, agent: str = "python", cwd: str | os.PathLike[str] | None = None, title: str = ""
    ) -> Items:
        from dreamkeep.capture.items import Items
        from dreamkeep.journal.places import session_id

        handle = self.open_session(session_id(agent, native_id))
        return Items(
            self._host,
            self._root,
            self._context.journals(),
            self._context.ids,
            self._context.owners(),
            handle,
            self._describe_session(cwd, title),
        )

    def end(self, session: str) -> Summary:
        from dreamkeep.session.summary import BY_HAND

        return self._change(session, lambda handle: handle.end(BY_HAND))

    def suspend(self, session: str) -> Summary:
        from dreamkeep.session.summary import BY_HAND

        return self._change(session, lambda handle: handle.suspend(BY_HAND))

    def resume(self, session: str) -> Summary:
        return self._change(session, lambda handle: handle.resume())

    def _change(self, text: str, act: Callable[[Session], None]) -> Summary:
        session = resolve_session(self._context, text)
        act(self.open_session(session))
        return self._sessions.summary(session)

    def _describe_session(self, cwd: str | os.PathLike[str] | None, title: str) -> dict[str, str]:
        from dreamkeep.capture.projects.project import project_of

        try:
            folder = os.path.abspath(os.fspath(cwd) if cwd is not None else ".")
            about = {"cwd": folder, "project": project_of(self._host, folder, os.uname().nodename)}
        except (OSError, ValueError, TypeError) as problem:
            raise BadUsage(f"the folder can't be read ({problem})", where="cwd", next="Pass an existing folder.") from problem
        return {**about, "title": title} if title else about

    def open_session(self, session: str) -> Session:
        """The session of that id, as it is: nothing is recorded by this."""
        from dreamkeep.capture.python import Session

        return Session(session, self._context.journals(), self._context.ids, self._context.owners())
