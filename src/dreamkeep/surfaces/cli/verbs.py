"""One function a verb: call `app`, print, give the exit code."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from dreamkeep.app import Keep
from dreamkeep.surfaces.cli import text


def run(arguments: Namespace) -> int:
    if arguments.verb == "completion":
        return _completion(arguments)
    with Keep.open(arguments.keep) as keep:
        keep.warn = lambda line: print(f"dreamkeep: {line}", file=sys.stderr)
        keep.progress = text.Progress("indexing") if sys.stderr.isatty() else None
        return _VERBS[arguments.verb](keep, arguments)


def _print(arguments: Namespace, data: Any, human: Callable[[Any], str]) -> None:
    if arguments.json:
        print(text.json_text(data))
    else:
        # What an agent wrote may hold lone surrogates or what the terminal's encoding lacks: never fail on it.
        encoding = sys.stdout.encoding or "utf-8"
        print(human(data).encode(encoding, "backslashreplace").decode(encoding))


def _status(keep: Keep, arguments: Namespace) -> int:
    _print(arguments, keep.status(), text.status)
    return 0


def _sessions(keep: Keep, arguments: Namespace) -> int:
    found = keep.sessions(project=arguments.project, agent=arguments.agent, limit=arguments.limit)
    _print(arguments, {"sessions": [keep.as_json(s) for s in found]}, text.sessions)
    return 0


def _show(keep: Keep, arguments: Namespace) -> int:
    _print(arguments, keep.show(arguments.session), text.session)
    return 0


def _reindex(keep: Keep, arguments: Namespace) -> int:
    built = keep.reindex(from_zero=arguments.from_zero, progress=text.Progress("indexing", always=True))
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
        state = "deleted" if verb == "delete" else session["state"]
        _print(arguments, {**session, "state": state}, lambda s: f"{s['id']} is {s['state']}.")
        return 0

    return run_verb


def _undelete(keep: Keep, arguments: Namespace) -> int:
    session = keep.undelete(arguments.session)
    _print(arguments, {"id": session, "state": "undeleted"}, lambda s: f"{s['id']} may be captured again.")
    return 0


def _completion(arguments: Namespace) -> int:
    import shtab

    from dreamkeep.surfaces.cli.parser import parser

    print(shtab.complete(parser(), arguments.shell))
    return 0


_VERBS: dict[str, Callable[[Keep, Namespace], int]] = {
    "status": _status,
    "sessions": _sessions,
    "show": _show,
    "reindex": _reindex,
    "doctor": _doctor,
    "end": _lifecycle("end"),
    "suspend": _lifecycle("suspend"),
    "resume": _lifecycle("resume"),
    "delete": _lifecycle("delete"),
    "undelete": _undelete,
}
