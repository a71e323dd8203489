"""`pack`: call one verb of Keep, print, give the exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text

Print = Callable[[Namespace, Any, Callable[[Any], str]], None]


def run(keep: Keep, arguments: Namespace, show: Print) -> int:
    made = keep.pack(arguments.query, arguments.project, arguments.task, arguments.budget)
    show(arguments, made, packed)
    return 0 if made["text"] else 1


def packed(made: dict[str, Any]) -> str:
    if made["text"]:
        return str(made["text"])
    where = f" in {text.line(made['project'])}" if made["project"] else ""
    if made["left_out"]:
        return f"Nothing{where} fits into {made['budget']} tokens. Allow more with --budget."
    return (
        f"Nothing to say{where} yet. `dreamkeep ingest` and `dreamkeep dream` make notes from sessions; `note add` adds one now."
    )
