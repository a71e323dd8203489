"""Records sessions and turns of your own Python agent as they happen. When a call returns, its record is durable.

A turn is owned by the process that submitted it, by a lock file held while the process lives. Nothing is written when an owner
dies; readers see that the lock is free. A process that is only stopped still holds it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from dreamkeep.errors import Refused, from_os
from dreamkeep.event import Body, Carry, Ids, Kind
from dreamkeep.host import Host, make_folders
from dreamkeep.host.liveness import HeldLock, hold, is_held, notice_forks, sweep
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session.summary import ACTIVE, ENDED, STATE_AFTER
from dreamkeep.session.turns import SETTLED

OWNERS = "state/owners"


class Owners:
    """The lock by which this process owns its turns, taken with the first one; and whether other owners are alive."""

    def __init__(self, host: Host, root: str, new_id: Callable[[], str]) -> None:
        self._host = host
        self._folder = f"{root}/{OWNERS}"
        self._new_id = new_id
        self._mutex = threading.Lock()
        self._held: HeldLock | None = None
        notice_forks(self)

    def mine(self) -> str:
        with self._mutex:
            if self._held is None:
                try:
                    make_folders(self._host, self._folder)
                    sweep(self._host, self._folder)
                    self._held = hold(self._host, lambda: f"{self._folder}/{self._new_id()}")
                except OSError as problem:
                    raise from_os(problem, "claiming the turn for this process", self._folder) from problem
            return os.path.basename(self._held.path)

    def alive(self, owner: str) -> bool:
        return "/" not in owner and is_held(self._host, f"{self._folder}/{owner}")

    def after_fork(self) -> None:
        """A living child must not make its parent's turns look alive."""
        self._mutex = threading.Lock()
        if self._held:
            self._held.forget()
            self._held = None

    def close(self) -> None:
        with self._mutex:
            if self._held:
                self._held.release()
                self._held = None


class Session:
    """One conversation. Threads and processes may share it."""

    def __init__(self, session: str, journals: JournalWriters, ids: Ids, owners: Owners) -> None:
        self.id = session
        self._journals = journals
        self._ids = ids
        self._owners = owners

    def open(self, about: Body) -> None:
        """Journal that the session began, or goes on after it had ended or was suspended."""
        state = self._state()
        if state is None:
            # Because `opened` is carried, it is journaled once only, also if two processes begin the session at the same time.
            self._append(Kind.SESSION_OPENED, {"session": self.id, **about}, {"state": ACTIVE, "opened": 1})
        elif state != ACTIVE:
            self.resume()
        if about.get("title"):
            self.title(about["title"])

    def submit(self, prompt: str) -> Turn:
        """A new turn. When this returns, the prompt is on disk: start the work then."""
        turn = self._ids.new()
        self._append(Kind.TURN_SUBMITTED, {"turn": turn, "prompt": _text(prompt), "owner": self._owners.mine()})
        return Turn(self, turn)

    def turn(self, turn: str) -> Turn:
        """A turn that was submitted before, perhaps by a process that is gone: late records still count."""
        return Turn(self, turn)

    def record(
        self,
        prompt: str,
        *messages: tuple[str, str] | Mapping[str, Any],
        state: str = "completed",
        reason: str | None = None,
    ) -> str:
        """A whole turn that is over, in one write and one sync: `record("why?", ("assistant", "Because."))`. Returns its id."""
        turn = self._ids.new()
        body = {"turn": turn, "prompt": _text(prompt), "messages": [_message(m) for m in messages], "state": _check_state(state)}
        self._append(Kind.TURN_RECORDED, {**body, **_reason_field(reason)})
        return turn

    def title(self, title: str) -> None:
        self._append(Kind.SESSION_TITLED, {"title": _text(title)}, {"title": title})

    def end(self, reason: str | None = None) -> None:
        """Finished: a dream may read it. Ending twice is ending once."""
        self._become(Kind.SESSION_ENDED, reason)

    def suspend(self, reason: str | None = None) -> None:
        """Set aside by intent: nothing closes it for being stale."""
        if self._state() == ENDED:
            raise Refused("an ended session can't be suspended", where=self.id, next="Resume it first.")
        self._become(Kind.SESSION_SUSPENDED, reason)

    def resume(self, reason: str | None = None) -> None:
        self._become(Kind.SESSION_RESUMED, reason)

    def _become(self, kind: str, reason: str | None) -> None:
        # If the journal carries this state already, the append is a replay; it is durable when this returns.
        self._append(kind, _reason_field(reason), {"state": STATE_AFTER[kind]})

    def _state(self) -> int | str | None:
        return self._journals.writer(self.id).carried("state")

    def _append(self, kind: str, body: Body, carry: Carry | None = None) -> None:
        self._journals.say(self.id, kind, body, carry)


class Turn:
    """Prompt → settle. As a context manager it starts, and settles by how the block ends."""

    def __init__(self, session: Session, turn: str) -> None:
        self.id = turn
        self._session = session
        self._state: str | None = None

    def start(self) -> None:
        self._session._append(Kind.TURN_STARTED, {"turn": self.id})

    def add(self, role: str, text: str, *, tool: Mapping[str, Any] | None = None) -> None:
        """One message; `tool` is what is known of a tool call or its result (name, input, output, exit code, …)."""
        if tool is None and role and type(role) is str and type(text) is str:
            body: Body = {"turn": self.id, "role": role, "text": text}
        else:
            body = {"turn": self.id, **_message({"role": role, "text": text, "tool": tool})}
        self._session._append(Kind.MESSAGE_ADDED, body)

    def settle(self, state: str = "completed", reason: str | None = None) -> None:
        """How it ended. Repeating it changes nothing; a different state is refused."""
        if self._state == _check_state(state):
            return
        if self._state is not None:
            raise Refused(f"the turn is already {self._state}", where=self.id, next="Submit a new turn.")
        self._session._append(Kind.TURN_SETTLED, {"turn": self.id, "state": state, **_reason_field(reason)})
        self._state = state

    def __enter__(self) -> Turn:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        if self._state is None:
            # KeyboardInterrupt, a cancelled task, an exit: somebody wanted it to stop.
            cancelled = kind is not None and not issubclass(kind, Exception)
            self.settle(
                "completed" if kind is None else "cancelled" if cancelled else "failed", repr(problem) if problem else None
            )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"must be a string, not {type(value).__name__}", where="a prompt or message", next="Pass a str.")
    return value


def _reason_field(reason: str | None) -> dict[str, str]:
    return {"reason": _text(reason)} if reason else {}


def _check_state(state: str) -> str:
    if state not in SETTLED:
        raise Refused(f"a turn can't be settled as {state!r}", where="state", next=f"Use one of {', '.join(SETTLED)}.")
    return state


def _message(given: tuple[str, str] | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(given) if isinstance(given, Mapping) else dict(zip(("role", "text", "?"), given, strict=False))
    role, text, tool = fields.pop("role", None), fields.pop("text", None), fields.pop("tool", None)
    if fields or not isinstance(role, str) or not role or not (tool is None or isinstance(tool, Mapping)):
        raise Refused(
            "a message has a role, a text and optionally a tool",
            where=repr(given)[:80],
            next='Pass ("assistant", "…") or {"role": …, "text": …, "tool": {…}}.',
        )
    message = {"role": role, "text": _text(text)}
    return message if tool is None else {**message, "tool": dict(tool)}
