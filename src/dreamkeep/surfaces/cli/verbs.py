"""One function a verb: call `Keep`, print, give the exit code."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dreamkeep.errors import BadUsage, DreamkeepError
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.verbs.standalone import run_untapped

#: These do it themselves, or must not be followed by anything: an audit writes nothing.
_NO_DRAINER = frozenset(("drain", "watch", "tap", "hook", "init", "audit", "repair"))
#: What one runs when things are broken works also where the settings are.
_ANYWAY = frozenset(("audit", "repair"))


def run(arguments: Namespace) -> int:
    if arguments.verb == "completion":
        return _completion(arguments)
    if arguments.verb == "hook":
        return _hook(arguments)
    if arguments.verb == "tour":
        return _tour(arguments)
    with _opened(arguments) as keep:
        if keep is None:
            return run_untapped(_command(arguments))
        keep.warn = text.complain
        keep.progress = text.ProgressLine("indexing") if sys.stderr.isatty() else None
        code = act(keep, arguments)
        if arguments.verb not in _NO_DRAINER:
            keep.start_drainer()
        return code


def act(keep: Keep, arguments: Namespace) -> int:
    arguments.masked = keep.masked
    return _VERBS[arguments.verb](keep, arguments)


def _print(arguments: Namespace, data: Any, human: Callable[[Any], str]) -> None:
    """The door that no secret leaves by: what a verb prints goes through here. docs/settings.md names the exceptions."""
    data = arguments.masked(data)
    if arguments.json:
        print(text.json_text(data))
    else:
        text.out(human(data))


def _status(keep: Keep, arguments: Namespace) -> int:
    _print(arguments, keep.status(), text.status)
    return 0


def _sessions(keep: Keep, arguments: Namespace) -> int:
    project = keep.project_named(arguments.project) if arguments.project else arguments.project
    found = keep.sessions(project=project, agent=arguments.agent, limit=arguments.limit)
    _print(arguments, {"sessions": [keep.as_json(s) for s in found]}, text.sessions)
    return 0


def _show(keep: Keep, arguments: Namespace) -> int:
    from dreamkeep.surfaces.cli import show

    return show.run(keep, arguments, _print)


def _pack(keep: Keep, arguments: Namespace) -> int:
    from dreamkeep.surfaces.cli import pack

    return pack.run(keep, arguments, _print)


def _search(keep: Keep, arguments: Namespace) -> int:
    from dreamkeep.surfaces.cli import search

    return search.run(keep, arguments, _print)


def _ingest(keep: Keep, arguments: Namespace) -> int:
    progress = text.ProgressLine("importing", always=True)
    found = list(
        keep.ingest(agents=arguments.agent, home=arguments.home, paths=arguments.paths, again=arguments.again, progress=progress)
    )
    data = {**ingested(found), "projects": list(keep.corrected)}
    _print(arguments, data, text.ingested)
    keep.catch_up()
    return 1 if data["totals"]["failed"] or data["totals"]["paused"] else 0


def ingested(found: list[Any]) -> dict[str, Any]:
    return {"sources": [_outcome(one) for one in found], "totals": _totals(found)}


def _outcome(one: Any) -> dict[str, Any]:
    shown = one._asdict()
    return shown if one.problem else {key: value for key, value in shown.items() if key != "problem"}


def _totals(found: list[Any]) -> dict[str, int]:
    return {
        "sources": len(found),
        "sessions": len({one.session for one in found if one.session}),
        "changed": sum(one.new_events > 0 for one in found),
        "new_bytes": sum(one.new_bytes for one in found),
        "new_events": sum(one.new_events for one in found),
        "failed": sum(one.state == "failed" for one in found),
        "paused": sum(one.state == "paused" for one in found),
    }


def _watch(keep: Keep, arguments: Namespace) -> int:
    import signal

    over: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: over.append(number))
    if not arguments.json:
        print("Watching. What is imported is listed here; Ctrl-C ends it.", file=sys.stderr)
    found = keep.watch(agents=arguments.agent, home=arguments.home, polling=arguments.poll, stopped=lambda: bool(over))
    for one in found:
        if one is not None:
            shown = keep.masked(_outcome(one))
            text.out(text.json_text(shown) if arguments.json else text.outcome(shown))
    return 0


def _opened(arguments: Namespace) -> AbstractContextManager[Keep | None]:
    """The keep; for `tap` None when it can't be opened: an agent must start whatever is wrong with our folder."""
    try:
        return Keep.open(arguments.keep, anyway=arguments.verb in _ANYWAY)
    except DreamkeepError as problem:
        if arguments.verb != "tap":
            raise
        text.complain(f"this session is not recorded: {problem}")
        return nullcontext()


def _command(arguments: Namespace) -> list[str]:
    command: list[str] = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise BadUsage("no agent command given", where="tap", next="Write it after --: dreamkeep tap -- gemini --acp")
    return command


def _tap(keep: Keep, arguments: Namespace) -> int:
    return keep.tap(_command(arguments), agent=arguments.agent)


def _hook(arguments: Namespace) -> int:
    """For who calls it this way; `init` installs the file itself, which starts much faster."""
    from dreamkeep.verbs.standalone import run_hook

    run_hook([arguments.agent, arguments.event], arguments.keep or "")
    return 0


def _tour(arguments: Namespace) -> int:
    """In a keep of its own: what is wrong with the user's is no reason not to look."""
    from dreamkeep.surfaces.cli import tour

    return tour.run(arguments)


def _init(keep: Keep, arguments: Namespace) -> int:
    changes = keep.init(
        agents=arguments.agent,
        home=arguments.home,
        dry_run=arguments.dry_run,
        uninstall=arguments.uninstall,
        mcp=not arguments.no_mcp,
    )
    hint = (
        None if arguments.uninstall or not changes else {"backend": keep.config["dream.backend"], "found": keep.models_at_hand()}
    )
    _print(arguments, {"changes": changes, **({"model": hint} if hint else {})}, text.changes)
    return 1 if any(change["action"] in ("refused", "failed") for change in changes) else 0


def _drain(keep: Keep, arguments: Namespace) -> int:
    data = keep.drain()
    for problem in data["problems"]:
        text.complain(problem)  # a detached drainer has nothing but this
    _print(arguments, data, text.drained)
    if data["sessions"]:
        keep.start_dream()
    return 1 if data["problems"] else 0


def _reindex(keep: Keep, arguments: Namespace) -> int:
    built = keep.reindex(from_zero=arguments.from_zero, progress=text.ProgressLine("indexing", always=True))
    keep.embed(progress=text.ProgressLine("embedding", always=True, of="texts"))
    data = {"journals": built.journals, "events": built.events, "removed": built.removed, "strays": list(built.strays)}
    _print(arguments, data, text.reindexed)
    return 0


def _doctor(keep: Keep, arguments: Namespace) -> int:
    checks = keep.doctor()
    ok = all(check["ok"] for check in checks)
    _print(arguments, {"ok": ok, "checks": checks}, text.doctor)
    return 0 if ok else 1


def _lifecycle(verb: str) -> Callable[[Keep, Namespace], int]:
    def run_verb(keep: Keep, arguments: Namespace) -> int:
        session = keep.as_json(getattr(keep, verb)(arguments.session))
        _print(arguments, session, _in_state)
        if verb == "end":
            keep.start_dream()
        return 0

    return run_verb


def _in_state(session: dict[str, Any]) -> str:
    return f"{session['id']} is {session['state']}."


def _delete(keep: Keep, arguments: Namespace) -> int:
    gone = [{**keep.as_json(one), "state": "deleted"} for one in keep.delete_all(arguments.session)]
    if len(arguments.session) == 1:
        _print(arguments, gone[0], _in_state)
    else:
        _print(arguments, {"sessions": gone}, lambda s: "\n".join(map(_in_state, s["sessions"])))
    return 0


def _undelete(keep: Keep, arguments: Namespace) -> int:
    session = keep.undelete(arguments.session)
    _print(arguments, {"id": session, "state": "undeleted"}, lambda s: f"{s['id']} can be captured again.")
    return 0


def _restore(keep: Keep, arguments: Namespace) -> int:
    done = keep.restore(
        arguments.session,
        arguments.to,
        home=arguments.home,
        cwd=arguments.cwd,
        generation=arguments.generation,
        convert=arguments.convert,
        dry_run=arguments.dry_run,
    )
    _print(arguments, done, text.restored)
    return 0


def _audit(keep: Keep, arguments: Namespace) -> int:
    found = keep.audit(deep=arguments.deep, home=arguments.home)
    _print(arguments, found, text.audited)
    return 0 if found["clean"] else 1


def _repair(keep: Keep, arguments: Namespace) -> int:
    done = keep.repair(
        apply=arguments.apply, undo=arguments.undo, accept=arguments.accept, only=arguments.only, home=arguments.home
    )
    _print(arguments, done, text.undone if arguments.undo else text.repaired)
    clean = not done["skipped"] if arguments.undo else done["audit"]["clean"]
    return 0 if clean else 1


def _completion(arguments: Namespace) -> int:
    import shtab

    from dreamkeep.surfaces.cli.parser import parser

    print(shtab.complete(parser(), arguments.shell))
    return 0


def _snapshot(keep: Keep, arguments: Namespace) -> int:
    progress = text.ProgressLine(f"{arguments.act}ing" if arguments.act != "verify" else "verifying", always=True)
    if arguments.act == "export":
        out = keep.export(arguments.file, view=not arguments.no_view, progress=progress)
        _print(arguments, out, text.exported)
        return 1 if out["problems"] else 0
    if arguments.act == "verify":
        found = keep.verify(arguments.file, progress=progress)
        _print(arguments, found, text.verified)
        return 0 if found["ok"] else 1
    done = keep.import_(arguments.file, progress=progress)
    _print(arguments, done, text.imported)
    return 1 if done["bad"] else 0


def _project(keep: Keep, arguments: Namespace) -> int:
    if (arguments.act == "undo") != (arguments.into is None):
        what = "`undo` takes one project" if arguments.act == "undo" else f"`{arguments.act}` takes two names"
        raise BadUsage(what, where=f"project {arguments.act}", next="See `dreamkeep project --help`.")
    if arguments.act == "undo":
        _print(arguments, keep.project_undo(arguments.project), text.project)
    elif arguments.act == "apart":
        _print(arguments, keep.project_apart(arguments.project, arguments.into), text.project_apart)
    else:
        act = keep.project_rename if arguments.act == "rename" else keep.project_merge
        _print(arguments, act(arguments.project, arguments.into), text.project)
    return 0


def _projects(keep: Keep, arguments: Namespace) -> int:
    _print(arguments, {"projects": keep.projects(), "offers": keep.project_offers()}, text.projects)
    return 0


def _review(keep: Keep, arguments: Namespace) -> int:
    from dreamkeep.surfaces.cli import review

    return review.run(keep, arguments, _print)


def _model(keep: Keep, arguments: Namespace) -> int:
    from dreamkeep.surfaces.cli import model

    return model.run(keep, arguments, _print)


def _of_dreams(verb: str) -> Callable[[Keep, Namespace], int]:
    def run(keep: Keep, arguments: Namespace) -> int:
        from dreamkeep.surfaces.cli import dream

        act: Callable[..., int] = getattr(dream, verb)
        return act(keep, arguments, _print)

    return run


_VERBS: dict[str, Callable[[Keep, Namespace], int]] = {
    "status": _status,
    "sessions": _sessions,
    "show": _show,
    "search": _search,
    "pack": _pack,
    "ingest": _ingest,
    "watch": _watch,
    "tap": _tap,
    "init": _init,
    "drain": _drain,
    "reindex": _reindex,
    "doctor": _doctor,
    "end": _lifecycle("end"),
    "suspend": _lifecycle("suspend"),
    "resume": _lifecycle("resume"),
    "delete": _delete,
    "undelete": _undelete,
    "audit": _audit,
    "repair": _repair,
    "restore": _restore,
    "snapshot": _snapshot,
    "review": _review,
    "model": _model,
    "projects": _projects,
    "project": _project,
    **{name: _of_dreams(name) for name in ("dream", "hygiene", "notes", "note", "page", "tasks", "task")},
}
