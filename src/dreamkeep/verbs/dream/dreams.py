"""Dreams: run them, report on them, undo them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadUsage, Busy, DreamkeepError, NotFound
from dreamkeep.event import rfc3339
from dreamkeep.verbs.arguments import resolve_session
from dreamkeep.verbs.dream.models import measure_spent_today
from dreamkeep.verbs.dream.pages import add_earlier, pages_differ, preview_pages, publish_pages, watch_edits
from dreamkeep.verbs.recovery.forget import forget_journal

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.dream.consolidate.known_files import Statement
    from dreamkeep.dream.parts import Parts
    from dreamkeep.dream.run import Dreaming
    from dreamkeep.dream.schedule import Scope
    from dreamkeep.event import Event
    from dreamkeep.index.store import Store
    from dreamkeep.memory.dreams import DreamProgress

#: Backends that answer requests.
_MODELS = ("openai", "anthropic", "command", "files", "agent")
#: What the names of Anthropic's models look like.
_ANTHROPIC_MODELS = "claude*"


def dream(
    context: KeepContext,
    *,
    if_due: bool = False,
    dry_run: bool = False,
    preview: bool = False,
    backend: Any = None,
    with_model: bool = False,
    sessions: Sequence[str] = (),
    limit: int | None = None,
    again: bool = False,
    since: str | None = None,
) -> dict[str, Any]:
    from dreamkeep.dream import parts as run_parts
    from dreamkeep.dream.schedule import Scope
    from dreamkeep.verbs.arguments import check_positive

    if dry_run and preview:
        raise BadUsage("choose a dry run or a preview", where="--dry-run --preview", next="Leave one of them out.")
    if limit is not None:
        check_positive(limit, "limit")
    from dreamkeep.dream.assemble import assemble, named

    asked = backend if backend is not None or not with_model else _find_model_backend(context)
    name = named(asked, context.config)
    if not context.exists():
        return run_parts.report(Scope((), "", "there is no keep yet", 0), why="there is no keep yet")
    chosen = [resolve_session(context, one) for one in sessions]
    if again:
        chosen = find_read_before(context, name, chosen, since)
        if not chosen:
            return run_parts.report(Scope((), "", "no session was read before", 0), why="no session was read before")
    elif since is not None:
        raise BadUsage("`since` works only with --again", where="--since", next="Add --again, or leave it out.")
    if dry_run:
        dreaming = open_dreaming(context, look=True)
        scope = dreaming.scope(if_due=if_due, sessions=chosen, limit=limit, name=name, again=again)
        return _add_given_up(_report_dry_run(context, scope), dreaming.given_up(name=name))

    def parts() -> Parts:
        config, known = context.config, open_known_files(context)
        return assemble(
            asked,
            config,
            context.host,
            context.environment,
            context.root,
            known,
            partial(measure_spent_today, context),
        )

    if preview:
        dreaming = open_dreaming(context, look=True)
        made, before, after = dreaming.preview(parts, if_due=if_due, sessions=chosen, limit=limit, name=name, again=again)
        report = {**made, "run": None, "preview": True, "diff": preview_pages(context, before, after)}
        return _add_given_up(report, dreaming.given_up(name=name))
    return run_dream(context, parts, if_due=if_due, sessions=chosen, limit=limit, name=name, again=again)


def find_read_before(context: KeepContext, name: str, chosen: Sequence[str], since: str | None, *, by: str = "") -> list[str]:
    """Which sessions to reread, oldest first: of those named, or of all, those that were read to their end. `by`: only those
    that this backend read."""
    from dreamkeep.dream import schedule
    from dreamkeep.dream.assemble import RULES
    from dreamkeep.verbs.arguments import parse_moment

    if name == RULES:
        way = "Choose one with `dreamkeep model use`, or name it with --backend."
        raise BadUsage("only a model can reread sessions", where="--again", next=way)
    first = parse_moment(since, "since") or ""

    def read(store: Store) -> list[str]:
        dreamed = [one for one in context.load_memory("dreamed").dreamed.values() if not chosen or one.session in chosen]
        done = [one for one in dreamed if schedule.eligibility(one, max_attempts=1) == schedule.CONSOLIDATED]
        done = [one for one in done if not by or one.backend == by]
        found = ((store.session(one.session), one) for one in done)
        return [one.session for summary, one in found if summary is not None and (summary.last_at or "") >= first]

    return context.ask(read)


def open_known_files(context: KeepContext) -> Callable[[str], Sequence[Statement]]:
    """Gives the statements of the user's own files (CLAUDE.md …) for a folder. Each file is read once for a run."""
    from dreamkeep.dream.consolidate.known_files import KnownFiles

    return KnownFiles(context.host, context.find_home(None)[0]).of


def run_dream(
    context: KeepContext,
    parts: Callable[[], Parts],
    *,
    if_due: bool,
    sessions: Sequence[str],
    limit: int | None,
    name: str,
    holder: str = "",
    part_tokens: int | None = None,
    again: bool = False,
) -> dict[str, Any]:
    """One run, with hand edits applied before it and pages published after it."""
    context.settle_deletions()
    # Hand edits come before what this run concludes.
    first = publish_pages(context, "") if pages_differ(context) else []
    hands = watch_edits(context)

    def journal_edits() -> None:
        first.extend(one for one in hands() if not one["problem"])

    def publish(run: str) -> list[dict[str, Any]]:
        reports: dict[tuple[str, str], dict[str, Any]] = {}
        for one in (*first, *publish_pages(context, run)):
            place = one["project"], one["path"]
            reports[place] = add_earlier(reports.get(place), one)
        return list(reports.values())

    dreaming = open_dreaming(context, part_tokens=part_tokens)
    made = dreaming.run(
        parts,
        if_due=if_due,
        sessions=sessions,
        limit=limit,
        name=name,
        publish=publish,
        journal_edits=journal_edits,
        holder=holder,
        asks=name in _MODELS,
        again=again,
    )
    if made["run"] or "shelved" in made:
        _follow_run_end(context)
    return _add_given_up({"pages": first, **made}, dreaming.given_up(context.load_memory("dreamed"), name))


def _follow_run_end(context: KeepContext) -> None:
    """Bring the index up to date with the end of a run: otherwise the next read-only question must build one in memory."""
    try:
        context.ask_memory(lambda memory: None)
    except (DreamkeepError, OSError) as problem:
        context.warn(f"Everything is safe, but the index can't be updated: {problem}")


def describe_given_up(context: KeepContext) -> tuple[str, str]:
    """The sessions that dreams gave up on, in words ("" for none), and how to retry them."""
    from dreamkeep.dream import schedule
    from dreamkeep.dream.assemble import named

    return schedule.describe_given_up(open_dreaming(context).given_up(name=named(None, context.config))), schedule.TRY_AGAIN


def start_dream(context: KeepContext) -> bool:
    if not context.config["dream.auto"] or context.is_off() or not context.exists():
        return False
    if context.environment.get("DREAMKEEP_DREAMING"):
        return False  # we are in a dream's own command
    words = [sys.executable, "-P", "-m", "dreamkeep", "--keep", context.root, "dream", "--if-due"]
    try:
        dreaming = open_dreaming(context)
        recorded = dreaming.complete()
        name = str(context.config["dream.backend"])
        if dreaming.busy() or not dreaming.scope(if_due=True, recorded=recorded.life, name=name).sessions:
            return False
        context.host.start(words, f"{context.root}/state/dream.log", gentle=True)
    except (DreamkeepError, OSError) as problem:
        # Only a warning: what the caller did (ending a session, draining) has succeeded.
        context.warn(f"A dream can't be started: {problem}")
        return False
    return True


def open_dreaming(context: KeepContext, *, look: bool = False, part_tokens: int | None = None) -> Dreaming:
    """`look`: write nothing. `part_tokens`: how much of a session goes into a request, instead of the setting."""
    from dreamkeep.dream.run import Dreaming
    from dreamkeep.dream.schedule import Settings

    config = context.config
    settings = Settings(
        config["dream.session_count"],
        config["dream.time_hours"],
        config["dream.max_attempts"],
        config["dream.loss_guard"],
        chunk_tokens=part_tokens or config["dream.model.chunk_tokens"],
    )
    ask = context.look if look else context.ask

    def append(events: Sequence[Event]) -> None:
        context.journals().append("", events)

    def forget(session: str) -> None:
        from dreamkeep.capture.forget import erase_in_keep
        from dreamkeep.journal.places import folder_of
        from dreamkeep.recovery.delete.pages import pages_with

        pages = pages_with(context.host, context.root, session)
        erase_in_keep(context.host, context.root, context.journals(), session, ())
        forget_journal(context, folder_of(session), pages)

    def mark_over(run: str) -> None:
        from dreamkeep.recovery.repair import dreams

        dreams.mark_over(context.host, context.root, context.journals(), context.ids, run)

    return Dreaming(
        context.host, context.root, append, context.ids, ask, settings, forget, None if look else context.glance, mark_over
    )


def _report_dry_run(context: KeepContext, scope: Scope) -> dict[str, Any]:
    """Scope and estimate, without asking a backend or writing anything."""
    from dreamkeep.dream.parts import report
    from dreamkeep.dream.queries import estimate

    found = context.look(lambda store: estimate(store, scope))
    sessions = [{"id": one.session, "status": one.status} for one in scope.sessions]
    return report(scope, dry_run=True, processed=len(scope.sessions), sessions=sessions, estimate=found, why=scope.why)


def _find_model_backend(context: KeepContext) -> str:
    """The backend that belongs to the model in the settings, if `dream.backend` is `rules`."""
    from fnmatch import fnmatchcase

    if context.config["dream.backend"] != "rules":
        return str(context.config["dream.backend"])
    if context.config["dream.model.command"]:
        return "command"
    if context.config["dream.model.url"] or context.config["dream.model.model"]:
        model = str(context.config["dream.model.model"] or "")
        url = str(context.config["dream.model.url"])
        return "anthropic" if "anthropic" in url or fnmatchcase(model, _ANTHROPIC_MODELS) else "openai"
    raise BadUsage(
        "the settings name no model",
        where="--with-model",
        next="Set `dream.model.url` and `dream.model.model`, or `dream.model.command`: docs/models.md.",
    )


def dream_status(context: KeepContext) -> dict[str, Any]:
    from dreamkeep.dream import schedule
    from dreamkeep.dream.queries import load_runs_and_ended, with_ended
    from dreamkeep.recovery.audit.dreams import left_alone

    memory, unrecorded = context.ask(load_runs_and_ended)
    recorded_at = {one.session: one.completion_at for one in memory.dreamed.values()}
    memory = with_ended(memory, unrecorded, rfc3339(context.host.now()))
    dreaming = open_dreaming(context)
    running = dreaming.busy()
    attempts, name = context.config["dream.max_attempts"], str(context.config["dream.backend"])
    scope = dreaming.scope(if_due=True, recorded=memory, name=name)
    poisoned = schedule.describe_given_up(dreaming.given_up(memory, name))
    ended = sorted(memory.dreamed.values(), key=lambda one: (one.completion_at or "", one.session))
    finished = [one for one in memory.runs.values() if one.report]
    report = max(finished, key=lambda one: one.number).report if finished else None
    return {
        "sessions": [
            {
                "id": one.session,
                "eligibility": schedule.eligibility(one, max_attempts=attempts, running=running, backend=name),
                "status": one.status,
                "trigger_reason": one.trigger or None,
                "completion_recorded_at": recorded_at.get(one.session),
                "last_attempt_at": one.last_attempt_at,
                "completed_at": one.completed_at,
                "attempts": one.attempts,
                "artifact_refs": list(one.artifacts),
                "failure_reason": one.failure or None,
            }
            for one in ended
        ],
        "trigger": {
            "due": bool(scope.sessions),
            "why": f"{scope.why}; {poisoned}" if poisoned else scope.why,
            "waiting": scope.waiting,
        },
        "running": running,
        "last_successful_run_at": schedule.last_success(memory.dreamed.values()),
        "last_report": report,
        "pages": [{"path": path, "problem": why} for path, why in left_alone(context.host, context.root, memory.pages.values())],
    }


def dream_history(context: KeepContext) -> list[dict[str, Any]]:
    runs = sorted(context.load_memory("runs").runs.values(), key=lambda one: one.number, reverse=True)
    running = next((one.id for one in runs if not one.is_over), "") if open_dreaming(context, look=True).busy() else ""
    return [{**one.as_json(), "running": one.id == running} for one in runs]


def dream_undo(context: KeepContext, run: str) -> dict[str, Any]:
    runs = context.load_memory("runs").runs
    found = [one for one in runs if one == run] or [one for one in runs if run and one.startswith(run)]
    if len(found) != 1:
        what = "no run" if not found else f"{len(found)} runs begin with"
        raise NotFound(f"{what} {run!r}", where="dream undo", next="`dreamkeep dream history` lists them.")
    again = runs[found[0]].undone
    if not again:
        with open_dreaming(context).lock() as ours:
            if not ours:
                raise Busy("a dream is running", where="dream undo", next="Wait until it has finished, or stop it.")
            if pages_differ(context):
                publish_pages(context, "")  # apply hand edits first: they stay when the run is undone
            _undo_run(context, found[0])
        publish_pages(context, "")
    return {"run": found[0], "undone": True, "before": again}


def _undo_run(context: KeepContext, run: str) -> None:
    """Journal the undoing and its consequences in one append, so that a crash leaves all of it or nothing."""
    from dreamkeep.dream.undo import rethought
    from dreamkeep.event import Event, Kind
    from dreamkeep.journal.places import KEEP
    from dreamkeep.journal.scan import read_events
    from dreamkeep.memory.memory import fold

    before = context.load_memory()
    now = rfc3339(context.host.now())
    undone = Event(context.ids.new(), Kind.DREAM_UNDONE, now, {"run": run})
    said = [event for _, event in read_events(context.host, f"{context.root}/{KEEP}")]
    decisions = rethought(before, fold([*said, undone]), run, now)
    context.journals().append("", [undone, *(Event(context.ids.new(), one.kind, now, one.body) for one in decisions)])


def _add_given_up(made: dict[str, Any], found: Sequence[DreamProgress]) -> dict[str, Any]:
    """Add the sessions that dreams gave up on. They are not journaled, because reasons may quote a session."""
    from dreamkeep.dream import schedule

    given_up = [{"id": one.session, "attempts": one.attempts, "reason": schedule.reason(one)} for one in found]
    why = made.get("why", "")
    if found and not made["considered"]:
        why = f"{why or 'no sessions are waiting'}; {schedule.describe_given_up(found)}"
    return {**made, "why": why, "given_up": given_up}
