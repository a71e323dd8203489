"""`search` and `pack` on the command line."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import look, text
from dreamkeep.surfaces.cli.commands import VerbAnswer, find_project

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_WIDTH = 300


def search(keep: Keep, arguments: Namespace) -> VerbAnswer:
    query = " ".join(arguments.query)
    found = keep.search(
        query,
        kinds=[kind.strip() for named in arguments.kind for kind in named.split(",") if kind.strip()],
        project=find_project(keep, arguments),
        agent=arguments.agent,
        session=keep.resolve(arguments.session) if arguments.session is not None else None,
        since=arguments.since,
        as_of=arguments.as_of,
        limit=arguments.limit,
    )
    data = {"hits": [hit.as_json() for hit in found]}
    return VerbAnswer(data, lambda data: _describe_hits(data, query, keep), 0 if found else 1)


def _describe_hits(data: dict[str, Any], query: str, keep: Keep) -> str:
    if not data["hits"]:
        return "Nothing found."
    bright = look.of(sys.stdout).colours
    return "\n\n".join(_describe_hit(hit, query, keep, bright) for hit in data["hits"])


def _describe_hit(hit: dict[str, Any], query: str, keep: Keep, bright: bool) -> str:
    what = hit["kind"] if hit["kind"] != "message" else hit.get("role", "message")
    place = f"{text.line(hit['session'])} {hit['seq']}" if hit["session"] else "by hand"
    when = (hit["at"] or "")[:16].replace("T", " ")
    said = " ".join(hit["text"].split())[:_WIDTH]
    lines = [
        f"{text.line(what)}  {place}  {when}  {text.line(hit['project'])}".rstrip(),
        f"  {_highlight(said, query, keep) if bright else text.line(said)}",
    ]
    if hit.get("superseded_by"):
        lines.append(f"  superseded by {text.line(hit['superseded_by'])}")
    if hit.get("mark") == "rewound":
        lines.append("  rewound by the user")
    return "\n".join(lines)


def _highlight(said: str, query: str, keep: Keep) -> str:
    out, at = [], 0
    for start, end in keep.places_of(query, said):
        if start >= at:
            out += [text.line(said[at:start]), _BOLD, text.line(said[start:end]), _PLAIN]
            at = end
    return "".join([*out, text.line(said[at:])])


def pack(keep: Keep, arguments: Namespace) -> VerbAnswer:
    made = keep.pack(arguments.query, arguments.project, arguments.task, arguments.budget)
    return VerbAnswer(made, _describe_pack, 0 if made["text"] else 1)


def _describe_pack(made: dict[str, Any]) -> str:
    if made["text"]:
        return str(made["text"])
    where = f" in {text.line(made['project'])}" if made["project"] else ""
    if made["left_out"]:
        return f"Nothing{where} fits into {made['budget']} tokens. Allow more with --budget."
    return (
        f"Nothing to say{where} yet. `dreamkeep ingest` and `dreamkeep dream` make notes from sessions; `note add` adds one now."
    )
