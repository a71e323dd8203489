"""Faults: what is wrong with a keep and the set-up around it, and its repair."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import cannot_read, from_os
from dreamkeep.verbs.dream.dreams import describe_given_up
from dreamkeep.verbs.upkeep import list_paused_sources, measure_room, measure_use

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext


def doctor(context: KeepContext) -> list[dict[str, Any]]:
    from importlib.util import find_spec

    from dreamkeep.agents import registry
    from dreamkeep.capture import setup
    from dreamkeep.capture.hooks import spool
    from dreamkeep.recovery import doctor
    from dreamkeep.verbs.capture import find_hook_file

    checks = [
        doctor.dreams(partial(describe_given_up, context)),
        doctor.disk(partial(measure_room, context)),
        doctor.sources(partial(list_paused_sources, context)),
    ]
    found = doctor.examine(context.host, context.root, context.ask, lambda: context.strays, checks)
    found += doctor.around(off=context.switched_off, meaning=find_spec("wordllama") is not None)
    if use := measure_use(context):
        found += doctor.quota(use["used"], use["limit"])
    host, root = context.host, context.root
    found += doctor.agents(registry.problems())
    found += doctor.guarded("spool", lambda: doctor.hooks(host, root, _list_lost_calls(context), *spool.counts(host, root)))
    where, environment = context.find_home(None)
    return found + setup.examine(context.host, where, environment, hook=find_hook_file(), keep=context.root)


def _list_lost_calls(context: KeepContext) -> list[tuple[str, str]]:
    """(file, line): what hooks could not keep, unless the user has accepted it."""
    from dreamkeep.capture.hooks import spool
    from dreamkeep.recovery.audit.keep import hook_lost

    found = spool.problems(context.host, context.root, context.environment)
    accepted = context.ask(lambda store: store.accepted()) if found else set()
    left = {path: lines for path, lines in found.items() if hook_lost(context.root, path, lines).id not in accepted}
    return [(path, line) for path, lines in left.items() for line in lines]


def audit(context: KeepContext, *, deep: bool = False, home: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    from dreamkeep.recovery.audit.audit import audit

    where, environment = context.find_home(home)
    try:
        found = audit(
            context.host,
            context.root,
            home=where,
            environment=environment,
            deep=deep,
            around=context.environment,
            misset=context.config_problem,
        )
    except OSError as problem:
        raise cannot_read(problem, context.root) from problem
    return found.as_json()


def repair(
    context: KeepContext,
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
    if not context.exists():
        context.warn(f"There is no keep at {context.root} yet; only the agents' own stores are checked.")
    where, environment = context.find_home(home)
    repair = Repair(
        PlanContext(context.host, context.root, where, environment, context.config["capture.exclude"]),
        lambda: audit(
            context.host,
            context.root,
            home=where,
            environment=environment,
            around=context.environment,
            misset=context.config_problem,
            sound=True,
        ),
        alive=context.is_alive,
        rebuild=lambda: context.with_index(lambda store: None),
        off=context.is_off(),
        misset=bool(context.config_problem),
        mask=context.event_mask(),
    )
    try:
        if undo is not None:
            return repair.undo(undo).as_json()
        if accept:
            return repair.accept(accept).as_json()
        return (repair.apply(only) if apply else repair.plan(only)).as_json()
    except OSError as problem:
        raise from_os(problem, "repairing", str(problem.filename or context.root)) from problem
