"""`search`: call app's verb, print the hits, give the exit code."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import look, text

Print = Callable[[Namespace, Any, Callable[[Any], str]], None]
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_WIDTH = 300


def run(keep: Keep, arguments: Namespace, show: Print) -> int:
    query = " ".join(arguments.query)
    found = keep.search(
        query,
        kinds=[kind.strip() for given in arguments.kind for kind in given.split(",") if kind.strip()],
        project=keep.project_named(arguments.project) if arguments.project is not None else None,
        agent=arguments.agent,
        session=keep.resolve(arguments.session) if arguments.session is not None else None,
        since=arguments.since,
        as_of=arguments.as_of,
        limit=arguments.limit,
    )
    show(arguments, {"hits": [as_json(hit) for hit in found]}, lambda data: human(data, query, keep))
    return 0 if found else 1


def as_json(hit: Any) -> dict[str, Any]:
    shown = hit._asdict()
    n = shown.pop("n")
    shown["seq"] = f"{hit.seq}.{n}" if n else hit.seq
    return {key: value for key, value in shown.items() if value != "" or key in ("session", "text", "project")}


def human(data: dict[str, Any], query: str, keep: Keep) -> str:
    if not data["hits"]:
        return "Nothing found."
    bright = look.of(sys.stdout).colours
    return "\n\n".join(_hit(hit, query, keep, bright) for hit in data["hits"])


def _hit(hit: dict[str, Any], query: str, keep: Keep, bright: bool) -> str:
    what = hit["kind"] if hit["kind"] != "message" else hit.get("role", "message")
    place = f"{text.line(hit['session'])} {hit['seq']}" if hit["session"] else "by hand"
    when = (hit["at"] or "")[:16].replace("T", " ")
    said = " ".join(hit["text"].split())[:_WIDTH]
    lines = [
        f"{text.line(what)}  {place}  {when}  {text.line(hit['project'])}".rstrip(),
        f"  {_highlighted(said, query, keep) if bright else text.line(said)}",
    ]
    if hit.get("superseded_by"):
        lines.append(f"  superseded by {text.line(hit['superseded_by'])}")
    if hit.get("mark") == "rewound":
        lines.append("  rewound by the user")
    return "\n".join(lines)


def _highlighted(said: str, query: str, keep: Keep) -> str:
    out, at = [], 0
    for start, end in keep.places_of(query, said):
        if start >= at:
            out += [text.line(said[at:start]), _BOLD, text.line(said[start:end]), _PLAIN]
            at = end
    return "".join([*out, text.line(said[at:])])
