"""Written talk with marks for what is to be kept (data/talks/*.txt): what the weights of `rules` are learnt from, and judged by.

    # topic                              a talk; an empty line ends it
    U nope. {correction: the port is 8443}, and hurry up
    A {finding: The proxy cuts at 30 s.} Shall I raise it?
    R make test => 0 12 passed           a command, its exit code and output
    E src/proxy.c                        a file was edited

`{type|type: words}` is to be kept, as one of these types; `{?type: words}` may be. Everything else is not. A line
break is ` \\n `.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from dreamkeep.dream.given import Given, Said, TaskGiven, TurnGiven
from dreamkeep.memory.insight import TYPES

FOLDER = Path(__file__).parent / "data" / "talks"
_AT = "2026-09-03T10:00:00Z"
_OPEN = re.compile(r"\{(\??)([a-z_]+(?:\|[a-z_]+)*): ?")


class Mark(NamedTuple):
    types: tuple[str, ...]
    optional: bool
    start: int
    end: int


class Line(NamedTuple):
    role: str
    text: str
    marks: tuple[Mark, ...]
    seq: str


def load(path: Path) -> list[list[Line]]:
    talks: list[list[Line]] = [[]]
    for raw in path.read_text(encoding="utf-8").splitlines():
        if not raw.strip() or raw.startswith("#"):
            talks.append([])
            continue
        text = re.sub(r" ?\\n ?", "\n", raw[2:])
        words, marks = _marked(text) if raw[0] in "UA" else (text, ())
        talks[-1].append(Line(raw[0], words, marks, str(2 * len(talks[-1]))))
    return [talk for talk in talks if talk]


def _marked(raw: str) -> tuple[str, tuple[Mark, ...]]:
    out: list[str] = []
    opened: list[tuple[tuple[str, ...], bool, int]] = []
    marks: list[Mark] = []
    n = 0
    while n < len(raw):
        found = _OPEN.match(raw, n)
        if found and set(types := tuple(found[2].split("|"))) <= set(TYPES):
            opened.append((types, bool(found[1]), len(out)))
            n = found.end()
            continue
        if raw[n] == "}" and opened:
            marks.append(Mark(*opened.pop(), len(out)))
        else:
            out.append(raw[n])
        n += 1
    return "".join(out), tuple(marks)


def given(talk: Sequence[Line]) -> Given:
    turns: list[list[Said]] = []
    for line in talk:
        if line.role == "U" or not turns:
            turns.append([])
        turns[-1] += _said(line)
    told = tuple(TurnGiven(f"t{n}", "completed", tuple(messages)) for n, messages in enumerate(turns))
    return Given("claude:talk", "claude", "p", "/p", "", (TaskGiven("t-1", "work"),), told)


def _said(line: Line) -> Iterator[Said]:
    if line.role in "UA":
        yield Said(line.seq, "user" if line.role == "U" else "assistant", line.text, _AT)
        return
    behind, called = str(int(line.seq) + 1), f"c{line.seq}"
    if line.role == "E":
        yield Said(
            line.seq, "assistant", "", _AT, {"id": called, "name": "Edit", "input": {"file_path": line.text.split(" ")[0]}}
        )
        yield Said(behind, "tool", "ok", _AT, {"id": called, "error": False})
        return
    command, _, result = line.text.partition(" => ")
    code, _, output = result.partition(" ")
    failed = code.lstrip("-").isdigit() and int(code) != 0
    yield Said(line.seq, "assistant", "", _AT, {"id": called, "name": "Bash", "input": {"command": command}})
    yield Said(behind, "tool", output, _AT, {"id": called, "name": "Bash", "exit_code": int(failed), "error": failed})


def met(marks: Sequence[Mark], start: int, end: int) -> list[Mark]:
    """The marks that a stretch of a line's text rests on: more than half of the shorter of both."""
    return [one for one in marks if min(end, one.end) - max(start, one.start) > 0.5 * min(end - start, one.end - one.start)]


def digest() -> str:
    """Of all that the weights are learnt from: when it changes, `make weights`."""
    whole = sha256()
    for path in sorted(FOLDER.glob("*.txt")):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
