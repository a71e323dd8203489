"""Written talk with marks for what is to be kept (data/talks/*.txt): what the weights of `rules` are learnt from, and judged by.

    # topic                              a talk; an empty line ends it
    U nope. {correction: the port is 8443}, and hurry up
    A {finding: The proxy cuts at 30 s.} Shall I raise it?
    R make test => 0 12 passed           a command, its exit code and output
    E src/proxy.c                        a file was edited

`{type|type: words}` is to be kept, as one of these types; `{?type: words}` may be. Everything else is not. A line
break is ` \\n `.

A bank (bank_*.txt) is single sentences, which are put into talk in many ways (`composed`): what a plain sentence means hangs on
what stands around it as little as can be.

    constraint|decision: Amounts are integers.
    -: rename foo to bar                 not to be kept
    ctx: clear up the archive => I look for duplicates first.
    next: Understood.                    what the model may say then
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
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
        talks[-1].append(_line(raw, len(talks[-1])))
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


class Bank(NamedTuple):
    """`said`: (types, sentence), no types: not to be kept. `before`: (user, model); `then`: what the model says."""

    said: tuple[tuple[tuple[str, ...], str], ...]
    before: tuple[tuple[str, str], ...]
    then: tuple[str, ...]


def bank(path: Path) -> Bank:
    said, before, then = [], [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        head, _, text = (part.strip() for part in line.partition(": "))
        if head == "ctx":
            user, _, model = text.partition(" => ")
            before.append((user, model))
        elif head == "next":
            then.append(text)
        elif text:
            types = tuple(head.split("|")) if head != "-" else ()
            if not set(types) <= set(TYPES):
                raise ValueError(f"no type: {line}")
            said.append((types, text))
    return Bank(tuple(said), tuple(before), tuple(then))


_DONE = ("R ls => 0 src", "R git status => 0 clean", "R make test => 0 12 passed", "R cat a.txt => 0 x", "E src/a.py")
_ENDS = re.compile(r"[.!?…]$")


def composed(whole: Bank, times: int) -> Iterator[list[Line]]:
    """Each sentence so many times: first or later, alone or among others, whatever the model does next. Always the same."""
    idle = [text for types, text in whole.said if not types]
    for types, text in whole.said:
        for n in range(times):
            yield _talk(whole, types, text, idle, Random(f"{n} {text}"))


def _talk(whole: Bank, types: tuple[str, ...], text: str, idle: Sequence[str], chance: Random) -> list[Line]:
    raw: list[str] = []
    if chance.random() > 0.2:
        user, model = chance.choice(whole.before)
        raw += [f"U {user}", *([chance.choice(_DONE)] if chance.random() < 0.3 else []), f"A {model}"]
    own = "{" + f"{'|'.join(types)}: {text}" + "}" if types else text
    others = [chance.choice(idle) for _ in range(2)]
    how = chance.random()
    words = [own] if how < 0.45 else [own, others[0]] if how < 0.65 else [others[0], own, *(others[1:] if how > 0.88 else [])]
    raw.append("U " + " ".join(one if one is words[-1] or _ENDS.search(one.rstrip("}")) else f"{one}." for one in words))
    if chance.random() < 0.5:
        raw += [chance.choice(_DONE)]
    if not raw[-1].startswith(("R", "E")) or chance.random() < 0.5:
        raw += [f"A {chance.choice(whole.then)}"]
    return [_line(one, n) for n, one in enumerate(raw)]


def _line(raw: str, n: int) -> Line:
    text = re.sub(r" ?\\n ?", "\n", raw[2:])
    words, marks = _marked(text) if raw[0] in "UA" else (text, ())
    return Line(raw[0], words, marks, str(2 * n))


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
