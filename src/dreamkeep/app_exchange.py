"""Part of app: dreams whose requests somebody else answers: a batch, a machine without a network, the agent at hand.

    dream_export ─► files ─► answers, whenever they come ─► dream_import ─► the next files … until none is left
    dream_next   ─► one request, to the agent that asks ─► dream_submit ─► the next request of that session … until none is left

Both are a folder (dream/exchange.py), a lease on its sessions (dream/leases.py), and the same run as any other dream.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, Busy, NotFound, from_os
from dreamkeep.host import remove_tree
from dreamkeep.journal.places import EXCHANGE, KEEP, folder_of

if TYPE_CHECKING:
    from dreamkeep.dream.exchange import Exchange
    from dreamkeep.dream.known_files import Statement
    from dreamkeep.dream.run import Dreaming, Parts
    from dreamkeep.index.store import Store
    from dreamkeep.journal.tombs import Tombstones
    from dreamkeep.memory.life import Dreamed

#: The backend's name where files are answered, and where an agent answers; and for how long each keeps its sessions.
_FILES, _AGENT = "files", "agent"
_FILES_LEASE_S, _AGENT_LEASE_S = 7 * 86_400, 30 * 60
#: Clients cut long answers of tools: so much of a session goes into one request for an agent.
_AGENT_TOKENS = 8_000
_LONGEST_ANSWER = 256 << 10
_REQUEST_ID = re.compile(r"[0-9a-f]{32}")
_MERGE = "merge"


class Exchanges(Part):
    """What `Keep` can do with requests that others answer."""

    if TYPE_CHECKING:

        def _dreaming(self, *, look: bool = False, part_tokens: int | None = None) -> Dreaming: ...

        def _similar(self, one: str, other: str) -> float: ...

        def _known_files(self) -> Callable[[str], Sequence[Statement]]: ...

        def _dream_now(
            self,
            parts: Callable[[], Parts],
            *,
            if_due: bool,
            sessions: Sequence[str],
            limit: int | None,
            name: str,
            holder: str = "",
            part_tokens: int | None = None,
            again: bool = False,
        ) -> dict[str, Any]: ...

        def _read_before(self, name: str, chosen: Sequence[str], since: str | None, *, by: str = "") -> list[str]: ...

    # -- files

    def dream_export(
        self,
        folder: str,
        *,
        sessions: Sequence[str] = (),
        limit: int | None = None,
        again: bool = False,
        since: str | None = None,
    ) -> dict[str, Any]:
        """The requests of a dream as files, for whoever answers them. The sessions are left to him for a week. `again`: about
        sessions that were read before, as `dream`."""
        from dreamkeep.app_asked import at_least_one
        from dreamkeep.dream.exchange import Exchange

        if limit is not None:
            at_least_one(limit, "limit")
        if since is not None and not again:
            raise BadUsage("`since` works only with --again", where="--since", next="Add --again, or leave it out.")
        folder = os.path.abspath(folder)
        exchange = Exchange(self._host, folder)
        exchange.check_target()
        dreaming = self._dreaming()
        with dreaming.lock() as mine:
            if not mine:
                raise Busy("another dream is running", where=self.root, next="Try again when it has finished.")
            dreaming.complete()
            chosen = [self.resolve(one) for one in sessions]
            if again:
                chosen = self._read_before(_FILES, chosen, since)
                limit = limit if chosen else 0
            made, _, _ = dreaming.preview(
                self._asked(exchange), sessions=chosen, limit=limit, name=_FILES, holder=exchange.holder, again=again
            )
            named = [one["id"] for one in made["sessions"]]
            count = exchange.write(named, again=again)
            dreaming.leases.take(named, exchange.holder, _FILES_LEASE_S)
        tokens = sum(len(one.system) + len(one.user) for one in exchange.missing.values()) // 4
        return {"folder": folder, "requests": count, "sessions": named, "tokens": tokens}

    def dream_import(self, folder: str) -> dict[str, Any]:
        """Takes the answers that are there, and writes what is to be asked next. The report; `partial` while something is."""
        from dreamkeep.dream.exchange import Exchange

        folder = os.path.abspath(folder)
        exchange = Exchange(self._host, folder)
        made = self._taken_in(exchange, name=_FILES)
        if made["lock"] != "acquired":
            return {**made, "folder": folder, "requests": None, "answers": 0, "problems": []}
        sessions = exchange.sessions()
        left = exchange.write(sessions)
        leases = self._dreaming().leases
        if left:
            leases.take([one for one in sessions if one not in leases.held(but=exchange.holder)], exchange.holder, _FILES_LEASE_S)
        else:
            leases.release(exchange.holder)
        return {**made, "folder": folder, "requests": left, "answers": exchange.answered, "problems": exchange.problems}

    def _taken_in(self, exchange: Exchange, *, name: str, part_tokens: int | None = None) -> dict[str, Any]:
        """A run over the folder's sessions, as far as they are still there."""
        sessions = exchange.sessions()
        there = self._ask(lambda store: [one for one in sessions if store.session(one) is not None])
        made = self._dream_now(
            self._asked(exchange),
            if_due=False,
            sessions=there,
            limit=None if there else 0,
            name=name,
            holder=exchange.holder,
            part_tokens=part_tokens,
            again=exchange.again,
        )
        partial = exchange.missing and made["status"] == "completed"
        return {**made, **({"status": "partial"} if partial else {})}

    def _asked(self, exchange: Exchange) -> Callable[[], Parts]:
        from dreamkeep.dream.parts import assemble_for

        return lambda: assemble_for(exchange, self._similar, self._known_files())

    # -- the agent at hand

    def dream_next(self, session: str = "", *, again: bool = False) -> dict[str, Any]:
        """One request, for the agent that asks; its session is left to it for half an hour. `session`: go on with this one.
        `again`: where nothing waits, also what rules alone have read."""
        chosen = self.resolve(session) if session else ""
        tried: set[str] = set()
        while True:
            found = self._offered(chosen, tried, again or bool(chosen and self._exchange_of(chosen).again))
            if "offer" in found:
                return dict(found["offer"])
            if found["settle"] is None:
                return {"request": None, "session": chosen, "requests_left": 0, "sessions_left": 0, "why": found["why"]}
            # Nothing is to be asked about it: it is read without.
            tried.add(found["settle"])
            self._settle(found["settle"], again=found["again"])

    def _offered(self, chosen: str, tried: set[str], again: bool) -> dict[str, Any]:
        """`offer`: what the agent gets. Else `settle`: a session that needs no answer any more, or None where nothing waits."""
        dreaming = self._dreaming(part_tokens=_AGENT_TOKENS)
        with dreaming.lock() as mine:
            if not mine:
                raise Busy("another dream is running", where=self.root, next="Try again when it has finished.")
            dreaming.complete()
            self._remove_abandoned(dreaming)
            holder = self._exchange_of(chosen).holder if chosen else ""
            scope = dreaming.scope(if_due=False, sessions=[chosen] if chosen else (), name=_AGENT, holder=holder)
            waiting = [one for one in self._ended(scope.sessions) if one.session not in tried]
            before = [] if waiting else self._read_before(_AGENT, [chosen] if chosen else (), None, by="rules")
            before = [one for one in before if one not in tried]
            repeats = bool(again and before)
            if repeats:
                scope = dreaming.scope(if_due=False, sessions=before, name=_AGENT, holder=holder, again=True)
                waiting = self._ended(scope.sessions)
            target = waiting[0].session if waiting else ""
            made = self._request_for(dreaming, target, again=repeats)
        if made is not None:
            return {"offer": {**made, "sessions_left": max(0, len(waiting) - 1)}}
        if target:
            return {"settle": target, "again": repeats}
        hint = f"; only rules have read {len(before)}: again=true rereads them" if before else ""
        return {"settle": None, "why": scope.why if chosen else f"no sessions are waiting{hint}"}

    def _request_for(self, dreaming: Dreaming, session: str, *, again: bool) -> dict[str, Any] | None:
        """The first request about a session; "": about notes that nobody compared yet. None where nothing is to be asked."""
        exchange, named, dead = self._exchange_of(session), [session] if session else [], self._tombstones()
        if not session and "" in dreaming.leases.held():
            return None
        limit = None if session else 0
        dreaming.preview(self._asked(exchange), sessions=named, limit=limit, name=_AGENT, holder=exchange.holder, again=again)
        if not exchange.missing:
            return None
        exchange.write(named, again=again)
        dreaming.leases.take([session], exchange.holder, _AGENT_LEASE_S)
        dead.follow()
        if dead.buried:  # its words must not stay, whoever looked for them before we wrote
            self._remove_exchange(EXCHANGE)
            raise Busy("the session has been deleted", where="dream_next", next="Call `dream_next` again.")
        return _shown(exchange, session)

    def dream_submit(self, request: str, answer: object) -> dict[str, Any]:
        """An answer to a request of `dream_next`: checked as any model's, and what came of it. `next`: what is asked then."""
        if not _REQUEST_ID.fullmatch(request):
            raise BadUsage("this is not the id of a request", where="request", next="Give the `id` that `dream_next` returned.")
        if len(json.dumps(answer, ensure_ascii=False)) > _LONGEST_ANSWER:
            raise BadUsage("the answer is too long", where="answer", next=f"Keep it below {_LONGEST_ANSWER >> 10} KiB.")
        session = self._asked_about(request)
        exchange, dead = self._exchange_of(session), self._tombstones()
        exchange.put_answer(request, answer)
        made = self._taken_in(exchange, name=_AGENT, part_tokens=_AGENT_TOKENS)
        if made["lock"] != "acquired":
            way = f"The answer is kept. Call `dream_next` with session={session!r} later."
            raise Busy("another dream is running", where="dream_submit", next=way)
        dead.follow()
        self._hand_on(exchange, session, deleted=bool(dead.buried))
        following = None if dead.buried else _shown(exchange, session)
        return {**made, "session": session, "problems": exchange.problems, "next": following}

    def _hand_on(self, exchange: Exchange, session: str, *, deleted: bool) -> None:
        """The folder as it is to be found next: with what is still asked, or gone."""
        leases = self._dreaming().leases
        if exchange.missing and not deleted:
            exchange.write([session] if session else [])
            leases.take([session], exchange.holder, _AGENT_LEASE_S)
        else:
            leases.release(exchange.holder)
            self._remove_exchange(EXCHANGE if deleted else _place_of(session))

    def _settle(self, session: str, *, again: bool) -> None:
        """What was answered is taken in, or there was nothing to ask."""
        exchange = self._exchange_of(session)
        if not exchange.is_there():
            exchange.write([session], again=again)
        made = self._taken_in(exchange, name=_AGENT, part_tokens=_AGENT_TOKENS)
        if made["lock"] != "acquired":
            raise Busy("another dream is running", where="dream_next", next="Try again when it has finished.")
        self._hand_on(exchange, session, deleted=False)

    def _asked_about(self, request: str) -> str:
        """The session that this request is about; "": notes."""
        for exchange in self._exchanges():
            if exchange.asks(request) and exchange.is_there():
                return next(iter(exchange.sessions()), "")
        raise NotFound(
            "this request is no longer open: it was answered, its 30 minutes are over, or its session was deleted",
            where=request,
            next="Call `dream_next` for the next one.",
        )

    def _exchanges(self) -> list[Exchange]:
        from dreamkeep.dream.exchange import Exchange

        root = f"{self.root}/{EXCHANGE}"
        names = sorted(self._host.names(root)) if self._host.stat(root) else []
        return [Exchange(self._host, f"{root}/{name}", batches=False) for name in names]

    def _exchange_of(self, session: str) -> Exchange:
        from dreamkeep.dream.exchange import Exchange

        return Exchange(self._host, f"{self.root}/{_place_of(session)}", batches=False)

    def _ended(self, sessions: Sequence[Dreamed]) -> list[Dreamed]:
        """Those that do not go on: one that does may be the very one that asks."""
        from dreamkeep.session.summary import ENDED

        def ended(store: Store) -> list[Dreamed]:
            found = ((one, store.session(one.session)) for one in sessions)
            return [one for one, summary in found if summary is not None and summary.state == ENDED]

        return self._ask(ended)

    def _remove_abandoned(self, dreaming: Dreaming) -> None:
        """Requests whose half hour is over: what they asked is asked anew."""
        holders = dreaming.leases.holders()
        for exchange in self._exchanges():
            try:
                held = exchange.is_there() and exchange.holder in holders
            except BadUsage:
                held = False  # nobody can read what it is
            if not held:
                self._remove_exchange(f"{EXCHANGE}/{exchange.name}")

    def _remove_exchange(self, place: str) -> None:
        try:
            remove_tree(self._host, f"{self.root}/{place}")
        except OSError as problem:
            raise from_os(problem, "removing requests", f"{self.root}/{place}") from problem

    def _tombstones(self) -> Tombstones:
        from dreamkeep.journal.tombs import Tombstones

        at, dead = self._ask(lambda store: (store.place(KEEP), set(store.tombstones())))
        return Tombstones(self._host, self.root, at.position if at else None, dead)


def _place_of(session: str) -> str:
    """Relative to the keep; "": of what is asked about notes."""
    return f"{EXCHANGE}/{os.path.basename(folder_of(session)) if session else _MERGE}"


def _shown(exchange: Exchange, session: str) -> dict[str, Any] | None:
    """The first of what is to be asked."""
    asked = next(iter(exchange.missing.values()), None)
    if asked is None:
        return None
    return {"request": asked.as_json(), "session": session, "requests_left": len(exchange.missing) - 1}
