"""Faults: what is wrong with a keep and the set-up around it, and its repair. Wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import cannot_read, from_os

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.verbs.dream.run import DreamVerbs
    from dreamkeep.verbs.limits import Limits


class FaultVerbs:
    """Faults: found, mended, accepted; and what a repair did, undone."""

    def __init__(self, context: KeepContext, limits: Limits, dreams: DreamVerbs) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._limits = limits
        self._dreams = dreams

    def doctor(self) -> list[dict[str, Any]]:
        from importlib.util import find_spec

        from dreamkeep.agents import registry
        from dreamkeep.capture import setup
        from dreamkeep.capture.hooks import spool
        from dreamkeep.recovery import doctor
        from dreamkeep.verbs.capture import find_hook_file

        checks = [
            doctor.dreams(self._dreams.describe_given_up),
            doctor.disk(self._limits.measure_room),
            doctor.sources(self._limits.list_paused_sources),
        ]
        found = doctor.examine(self._host, self._root, self._context.ask, lambda: self._context.strays, checks)
        found += doctor.around(off=self._context.switched_off, meaning=find_spec("wordllama") is not None)
        if use := self._limits.measure_use():
            found += doctor.quota(use["used"], use["limit"])
        host, root = self._host, self._root
        found += doctor.agents(registry.problems())
        found += doctor.guarded("spool", lambda: doctor.hooks(host, root, self._list_lost_calls(), *spool.counts(host, root)))
        where, environment = self._context.find_home(None)
        return found + setup.examine(self._host, where, environment, hook=find_hook_file(), keep=self._root)

    def _list_lost_calls(self) -> list[tuple[str, str]]:
        """(file, line): what hooks could not keep, unless the user has accepted it."""
        from dreamkeep.capture.hooks import spool
        from dreamkeep.recovery.audit.keep import hook_lost

        found = spool.problems(self._host, self._root, self._context.environment)
        accepted = self._context.ask(lambda store: store.accepted()) if found else set()
        left = {path: lines for path, lines in found.items() if hook_lost(self._root, path, lines).id not in accepted}
        return [(path, line) for path, lines in left.items() for line in lines]

    def audit(self, *, deep: bool = False, home: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        from dreamkeep.recovery.audit.audit import audit

        where, environment = self._context.find_home(home)
        try:
            found = audit(
                self._host,
                self._root,
                home=where,
                environment=environment,
                deep=deep,
                around=self._context.environment,
                misset=self._context.config_problem,
            )
        except OSError as problem:
            raise cannot_read(problem, self._root) from problem
        return found.as_json()

    def repair(
        self,
        *,
        apply: bool = False,
        undo: str | None = None,
        accept: Sequence[str] = (),
        only: Sequence[str] = (),
        home: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        from dreamkeep.recovery.audit.audit import audit
        from dreamkeep.recovery.repair.context import PlanContext
        from dreamkeep.recovery.repair.repair import Repair, check_arguments

        check_arguments(apply=apply, undo=undo, accept=accept, only=only)
        if not self._context.exists():
            self._context.warn(f"There is no keep at {self._root} yet; only the agents' own stores are checked.")
        where, environment = self._context.find_home(home)
        repair = Repair(
            PlanContext(self._host, self._root, where, environment, self._context.config["capture.exclude"]),
            lambda: audit(
                self._host,
                self._root,
                home=where,
                environment=environment,
                around=self._context.environment,
                misset=self._context.config_problem,
                sound=True,
            ),
            alive=self._context.is_alive,
            rebuild=lambda: self._context.with_index(lambda store: None),
            off=self._context.is_off(),
            misset=bool(self._context.config_problem),
            mask=self._context.event_mask(),
        )
        try:
            if undo is not None:
                return repair.undo(undo).as_json()
            if accept:
                return repair.accept(accept).as_json()
            return (repair.apply(only) if apply else repair.plan(only)).as_json()
        except OSError as problem:
            raise from_os(problem, "repairing", str(problem.filename or self._root)) from problem
