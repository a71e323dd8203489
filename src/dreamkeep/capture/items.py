"""Items of a session, as a framework passes them: kept exactly, durable when a call returns, returned as they were.

Adding appends an event. Removing appends one, too: it names what goes, and is written only if nothing changed since we read (the
journal carries the id of the last change), so that two processes never remove the same item. session/items.py decides what is
there now. What was read is remembered, so only new events are read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dreamkeep.agents.shared.openai_items import is_answer, is_prompt, is_result
from dreamkeep.capture.python import Owners, Session
from dreamkeep.errors import Refused, cannot_read
from dreamkeep.event import Body, Event, Ids, Kind, rfc3339
from dreamkeep.host import Host
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Position, Reading
from dreamkeep.journal.scan import events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session.items import Current

_CARRIED = "items"


class Items:
    """The items of one session. Threads and processes may share it; the session begins with the first that is added."""

    def __init__(
        self,
        host: Host,
        root: str,
        journals: JournalWriters,
        ids: Ids,
        owners: Owners,
        session: Session,
        about: Mapping[str, Any],
    ) -> None:
        self.session = session
        self._host = host
        self._folder = f"{root}/{folder_of(session.id)}"
        self._journals = journals
        self._ids = ids
        self._owners = owners
        self._about = about
        self._mutex = threading.RLock()
        self._current = Current()
        self._position = Position()

    def add(self, items: Sequence[Any], *, run: str, over: Sequence[Body] = (), instead: bool = False) -> None:
        """All of them or none. `over`: runs of which this shows that they have ended. `instead`: of all that are there."""
        body = {"run": run, "owner": self._owners.mine(), "items": list(items), **({"instead": True} if instead else {})}
        self.session.open(self._about)
        self._about = {key: word for key, word in self._about.items() if key != "title"}  # said once; others may have changed it
        ended = [self._event(Kind.RUN_OVER, one) for one in over]
        self._journals.append(self.session.id, [*ended, self._change(Kind.ITEMS_ADDED, body)])

    def over(self, runs: Sequence[Body]) -> None:
        """Those runs have ended, without an answer."""
        self._journals.append(self.session.id, [self._event(Kind.RUN_OVER, one) for one in runs])

    def now(self, limit: int | None = None) -> list[Any]:
        """The latest of them, in order; each a copy."""
        with self._mutex:
            self._follow()
            return [copied(item) for item in self._current.items(limit)]

    def pop(self) -> Any | None:
        while True:
            with self._mutex:
                self._follow()
                last, found = self._current.last, self._current.newest()
            if found is None:
                return None
            taken = [self._change(Kind.ITEMS_POPPED, {"of": found[0]})]
            if self._journals.append_if(self.session.id, taken, {_CARRIED: last}) is not None:
                return copied(found[1])

    def clear(self) -> None:
        with self._mutex:
            self._follow()
            anything = self._current.newest() is not None
        if anything:
            self._journals.append(self.session.id, [self._change(Kind.ITEMS_CLEARED, {})])

    def _event(self, kind: str, body: Body) -> Event:
        return Event(self._ids.new(), kind, rfc3339(self._host.now()), body)

    def _change(self, kind: str, body: Body) -> Event:
        event = self._event(kind, body)
        return event._replace(carry={_CARRIED: event.id})

    def _follow(self) -> None:
        """Reads what is new. The journal carries the id of the last change, which tells whether we have read everything."""
        carried = self._journals.writer(self.session.id).carried(_CARRIED)
        if carried == self._current.last:
            return
        try:
            if not self._read(carried):
                # Nothing is there any more, or what was read is not what lies there now (damage, a repair): from zero, then.
                self._current, self._position = Current(), Position()
                self._read(carried)
        except OSError as problem:
            raise cannot_read(problem, self._folder) from problem

    def _read(self, until: int | str | None) -> bool:
        reading = Reading(self._host, self._folder, self._position if self._position.seq else None)
        seen = False
        for _, event in events(reading):
            self._current.step(event)
            seen = seen or event.id == until
        self._position = reading.position
        return seen and not reading.defects and not reading.refers_before_start


def kind_of(item: object) -> str:
    """What an item is in a run: prompt, answer, result (of a tool), other."""
    if not isinstance(item, Mapping):
        return "other"
    return "prompt" if is_prompt(item) else "answer" if is_answer(item) else "result" if is_result(item) else "other"


def copy_json(value: object) -> Any:
    """A copy that is JSON data through and through: nothing that would come back as something else."""
    try:
        return _copy_value(value)
    except RecursionError:
        raise Refused("it is nested too deeply", where="an item of a session", next="Nest at most about 100 levels.") from None


def _copy_value(value: object) -> Any:
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {str(key): _copy_value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy_value(one) for one in value]
    for base in (str, bool, int, float):
        if isinstance(value, base):
            return base(value)
    raise Refused(
        f"{type(value).__name__} is not JSON data",
        where="an item of a session",
        next="Pass only dicts with string keys, lists, strings, numbers, booleans and None.",
    )


def copied(value: Any) -> Any:
    """As `plain`, of what is plain."""
    if type(value) is dict:
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if type(value) is list else value
