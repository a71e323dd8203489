"""Capture on the command line: ingest, watch, tap, init, drain."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from typing import Any

from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer, tapped_command


def ingest(keep: Keep, arguments: Namespace) -> VerbAnswer:
    progress = text.ProgressLine("importing", always=True)
    found = list(
        keep.ingest(agents=arguments.agent, home=arguments.home, paths=arguments.paths, again=arguments.again, progress=progress)
    )
    data = {**show_outcomes(found), "projects": list(keep.corrected)}
    return VerbAnswer(data, describe_ingested, 1 if data["totals"]["failed"] or data["totals"]["paused"] else 0)


def show_outcomes(found: list[Any]) -> dict[str, Any]:
    return {"sources": [_show_outcome(one) for one in found], "totals": _count_outcomes(found)}


def _show_outcome(one: Any) -> dict[str, Any]:
    shown = one._asdict()
    return shown if one.problem else {key: value for key, value in shown.items() if key != "problem"}


def _count_outcomes(found: list[Any]) -> dict[str, int]:
    return {
        "sources": len(found),
        "sessions": len({one.session for one in found if one.session}),
        "changed": sum(one.new_events > 0 for one in found),
        "new_bytes": sum(one.new_bytes for one in found),
        "new_events": sum(one.new_events for one in found),
        "failed": sum(one.state == "failed" for one in found),
        "paused": sum(one.state == "paused" for one in found),
    }


def describe_ingested(data: dict[str, Any]) -> str:
    lines = [_describe_outcome(one) for one in data["sources"] if one["state"] not in ("unchanged", "empty", "waiting", "paused")]
    totals = data["totals"]
    if not totals["sources"]:
        return "No agent sessions found. Look elsewhere with --home DIR, or name the files."
    new = f"{totals['changed']} with new data ({text.size(totals['new_bytes'])})" if totals["changed"] else "nothing new"
    bad = f", {totals['failed']} with a problem" if totals["failed"] else ""
    lines.append(f"Checked {text.counted(totals['sources'], 'source')}: {new}{bad}.")
    if why := next((one["problem"] for one in data["sources"] if one["state"] == "paused"), ""):
        lines.append(f"✗ {totals['paused']} of them {text.line(why)}")  # the same for all: said once
    for one in data.get("projects", ()):
        lines.append(f"{text.line(one['was'])} belongs to {text.line(one['now'])}: {text.line(one['why'])}.")
        lines.append(f"  Undo with: dreamkeep project undo {shlex.quote(text.line(one['was']))}")
    return "\n".join(lines)


def _describe_outcome(one: dict[str, Any]) -> str:
    what = text.line(one["session"] or one["path"])
    if one.get("problem"):
        return f"✗ {text.line(one['path'])}: {text.line(one['problem'])}"
    return f"{'+' if one['new_events'] else ' '} {one['state']:9} {what}" + (
        f"  {text.size(one['new_bytes'])}" if one["new_bytes"] else ""
    )


def watch(keep: Keep, arguments: Namespace) -> int:
    import signal

    over: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: over.append(number))
    if not arguments.json:
        print("Watching. What is imported is listed here; Ctrl-C ends it.", file=sys.stderr)
    found = keep.watch(agents=arguments.agent, home=arguments.home, polling=arguments.poll, stopped=lambda: bool(over))
    for one in found:
        if one is not None:
            shown = keep.masked(_show_outcome(one))
            text.out(text.json_text(shown) if arguments.json else _describe_outcome(shown))
    return 0


def tap(keep: Keep, arguments: Namespace) -> int:
    return keep.tap(tapped_command(arguments), agent=arguments.agent)


def init(keep: Keep, arguments: Namespace) -> VerbAnswer:
    changes = keep.init(
        agents=arguments.agent,
        home=arguments.home,
        dry_run=arguments.dry_run,
        uninstall=arguments.uninstall,
        mcp=not arguments.no_mcp,
    )
    data: dict[str, Any] = {"changes": changes}
    if changes and not arguments.uninstall:
        data["model"] = {"backend": keep.config["dream.backend"], "found": keep.models_at_hand()}
    refused = any(change["action"] in ("refused", "failed") for change in changes)
    return VerbAnswer(data, _describe_changes, 1 if refused else 0)


def _describe_changes(data: dict[str, Any]) -> str:
    if not data["changes"]:
        return "No agents found. Name one with --agent, or another home folder with --home."
    lines = []
    for change in data["changes"]:
        lines.append(f"{change['action']:10} {change['agent']:9} {text.line(change['file'])}")
        lines += [f"             {text.line(change[key])}" for key in ("problem", "reason") if change.get(key)]
    return "\n".join([*lines, *_hint_at_models(data.get("model"))])


def _hint_at_models(told: dict[str, Any] | None) -> list[str]:
    """One line, where dreams ask no model yet."""
    if told is None or told["backend"] != "rules":
        return []
    found = f" (found here: {', '.join(told['found'])})" if told["found"] else ""
    return [f"A model would get more out of your sessions{found}. See: dreamkeep model"]


def drain(keep: Keep, arguments: Namespace) -> VerbAnswer:
    data = keep.drain()
    for problem in data["problems"]:
        text.complain(problem)  # a detached drainer has nothing but this
    if data["sessions"]:
        keep.start_dream()
    return VerbAnswer(data, _describe_drained, 1 if data["problems"] else 0)


def _describe_drained(data: dict[str, Any]) -> str:
    if not data["calls"]:
        return "No hook calls are waiting."
    calls = "1 hook call" if data["calls"] == 1 else f"{data['calls']} hook calls"
    return f"Moved {calls} from {text.counted(data['sessions'], 'session')} into the journals."
