"""`show`: one session as text, as Markdown, one segment of it, or going on as it grows."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from dreamkeep.errors import BadUsage
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text

Print = Callable[[Namespace, Any, Callable[[Any], str]], None]
_LOOK_S = 0.5


def run(keep: Keep, arguments: Namespace, show: Print) -> int:
    if arguments.raw:
        return _raw(keep, arguments)
    if arguments.digest:
        show(arguments, keep.digest(arguments.session), text.digest)
        return 0
    if arguments.follow:
        return _follow(keep, arguments)
    show(arguments, _asked(keep, arguments), keep.markdown if arguments.markdown else text.session)
    return 0


def _asked(keep: Keep, arguments: Namespace) -> dict[str, Any]:
    data = keep.show(arguments.session, live=arguments.live)
    if arguments.lineage:
        data["lineage"] = keep.lineage(data["session"]["id"])
    return one_segment(data, arguments.segment) if arguments.segment else data


def _raw(keep: Keep, arguments: Namespace) -> int:
    """What agents wrote, as they wrote it: bytes on stdout, or a list of it as JSON."""
    found = keep.raw(arguments.session)
    if arguments.json:
        lines = [{**about, "line": line.decode("utf-8", "backslashreplace")} for about, line in found]
        print(text.json_text({"raw": lines}))
        return 0
    if sys.stdout.isatty():
        # A terminal would obey what is in there; who wants the bytes has them in a file or a pipe.
        for _, line in found:
            text.out(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        return 0
    for _, line in found:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


def one_segment(data: dict[str, Any], which: str) -> dict[str, Any]:
    """Only what belongs to one segment; a turn that spans its boundary is there with both ends."""
    found = data["segments"]
    number = len(found) if which == "current" else int(which) if which.isascii() and which.isdigit() else 0
    if not 1 <= number <= len(found):
        raise BadUsage(f"no segment {which!r}", where="--segment", next=f"Use `current`, or 1 to {len(found)}.")
    segment = found[number - 1]
    ends = _bookends(data["messages"], {segment["carried_turn"], segment["continued_turn"]})
    said = [m for m in data["messages"] if m["segment"] == segment["id"] or m["seq"] in ends]
    return {
        **data,
        "segments": [segment],
        "messages": said,
        "turns": [t for t in data["turns"] if t["id"] in {m["turn"] for m in said}],
    }


def _bookends(said: list[dict[str, Any]], turns: set[str | None]) -> set[Any]:
    """Of turns that span a boundary: the prompt, and the last word."""
    ends = set()
    for turn in turns - {None}:
        mine = [m for m in said if m["turn"] == turn and not m.get("mark")]
        ends |= {m["seq"] for m in mine if m["role"] == "user"} if mine else set()
        last = [m["seq"] for m in mine if m["role"] == "assistant" and m["text"]]
        ends |= set(last[-1:])
    return ends


def _follow(keep: Keep, arguments: Namespace) -> int:
    """What is there, then what comes. A message that grows or changes is shown again."""
    shown: dict[str, str] = {}
    try:
        while True:
            for message in keep.masked(_asked(keep, arguments))["messages"]:
                key = str(message["seq"])
                if shown.get(key) != message["text"]:
                    shown[key] = message["text"]
                    text.out(text.json_text(message) if arguments.json else text.message(message))
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return 0
