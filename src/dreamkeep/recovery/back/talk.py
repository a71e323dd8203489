"""A folded session as the plain talk that every agent's format can hold, and a list of what does not go into it. Pure.

    messages of any agent ─► plain() ─► Talk(steps) ─► a writer of this folder ─► the agent's own bytes

Rules that all models' interfaces share, kept here once:
* a call has an id and a name of letters, digits, `_` and `-`, an object as its input, and exactly one result, right after the
  calls that were made together with it; a call that never got a result gets a note in its place;
* words hold no lone surrogates, and no message is empty;
* times only grow: a reader takes equal words at an equal time for one message.

Left out, and counted: what was taken back, and what the client itself said (environment, reminders, hooks, our own packs): the
agent that resumes says its own. What a fork copied from its parent is part of what its model sees, and stays.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from dreamkeep.session import facts as f
from dreamkeep.session.formats.common import when
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary, title_of

#: A step's kind.
USER, ASSISTANT, REASONING, CALL, RESULT, SUMMARY = "user", "assistant", "reasoning", "call", "result", "summary"

NO_RESULT = "[no result was recorded]"
_NO_NAME = "unknown_tool"
_LONGEST_NAME = 64
_LONGEST_ID = 64
_SAFE = re.compile(r"[^A-Za-z0-9_-]")
_LONE = re.compile("[\ud800-\udfff]")
_EPOCH = "1970-01-01T00:00:00.000000Z"
_TICK = timedelta(milliseconds=1)
#: Prompts and summaries stand apart from what is next to them: in Hermes, rows within some 20 ms count as a compaction's copies.
_APART = timedelta(milliseconds=50)
_SPOKEN = {f.USER: USER, f.ASSISTANT: ASSISTANT, f.REASONING: REASONING, f.SUMMARY: SUMMARY}
_DEEPEST = 100

#: What did not go in, in words for people; the keys of a Losses.
REWOUND = "messages that were undone"
CLIENT = "messages from the client itself: environment, reminders, hooks, notices"
EMPTY = "messages without text"
ROLES = "messages with an unknown role"
UNANSWERED = "tool calls without a result: replaced by a note"
UNCALLED = "tool results without a known call: each got a made-up call"
FILES = "full tool outputs in separate files, whose call is elsewhere or already answered"
IDS = "tool call ids that had to be changed"
NAMES = "tool names that had to be changed"
INPUTS = "tool inputs that are not plain objects: wrapped or shortened"
FAILED = "failure marks of tools whose output doesn't mention a failure"
SURROGATES = "messages with invalid characters (lone surrogates), shown as U+FFFD"
TIMES = "unknown or out-of-order times: adjusted"


class Step(NamedTuple):
    """`at` is always there. `id`, `name`, `input` of a call; `id`, `name`, `failed` of its result."""

    kind: str
    text: str
    at: str
    id: str = ""
    name: str = ""
    input: Mapping[str, Any] = {}
    failed: bool = False


class Talk(NamedTuple):
    """`session` is our own id. `title` is "" where the first prompt says as much."""

    session: str
    cwd: str
    title: str
    model: str
    branch: str
    started_at: str
    steps: tuple[Step, ...]


Losses = Counter[str]


class Written(NamedTuple):
    """A writer's result: a file below the agent's place, and what its format could not hold."""

    path: str
    data: bytes
    native: str
    lost: Losses


def plain(summary: Summary, messages: Iterable[Message], about: Mapping[str, Any], cwd: str = "") -> tuple[Talk, Losses]:
    """`about`: what else is known of the session (model, branch). `cwd`: another folder than its own."""
    lost: Losses = Counter()
    steps = _paired(list(_steps(messages, lost)), lost)
    timed = tuple(_timed(steps, summary.started_at or "", lost))
    first = next((step.text for step in timed if step.kind == USER), "")
    title = clean(summary.title)
    talk = Talk(
        summary.id,
        clean(cwd or summary.cwd),
        "" if title == title_of(first) else title,
        clean(str(about.get("model") or "")),
        clean(str(about.get("branch") or "")),
        timed[0].at if timed else summary.started_at or _EPOCH,
        timed,
    )
    return talk, lost


def clean(text: str) -> str:
    return _LONE.sub("\ufffd", text)


# -- messages → steps


def _steps(messages: Iterable[Message], lost: Losses) -> Iterator[Step]:
    for message in messages:
        why = _left_out(message)
        if why:
            lost[why] += 1
            continue
        text = clean(message.text)
        lost[SURROGATES] += text != message.text
        at = when(message.at) or ""
        tool = message.tool or {}
        if message.role == f.TOOL:
            beside = {"beside": True} if tool.get("file") else {}
            yield Step(
                RESULT, text, at, str(tool.get("id") or ""), str(tool.get("name") or ""), beside, tool.get("error") is True
            )
            continue
        kind = _SPOKEN[message.role]
        if text.strip():
            yield Step(kind, text, at)
        elif kind != ASSISTANT or not tool:
            lost[EMPTY] += 1
        if kind == ASSISTANT and tool:
            yield Step(CALL, "", at, str(tool.get("id") or ""), str(tool.get("name") or ""), _object(tool.get("input"), lost))


def _left_out(message: Message) -> str:
    if message.mark == f.REWOUND:
        return REWOUND
    # A result is its call's, whatever memory was handed in with it.
    own = ("", f.COPIED, f.PARTIAL, f.INJECTED) if message.role == f.TOOL else ("", f.COPIED, f.PARTIAL)
    if message.role == f.SYSTEM or (message.mark not in own and message.role != f.SUMMARY):
        return CLIENT
    return "" if message.role in _SPOKEN or message.role == f.TOOL else ROLES


def _object(value: object, lost: Losses) -> dict[str, Any]:
    """An object that strict JSON can hold."""
    found = _strict(value, 0)
    whole = found if isinstance(found, dict) else {} if value is None else {"input": found}
    lost[INPUTS] += value is not None and not _same(whole, value)
    return whole


def _same(one: object, other: object) -> bool:
    try:
        return one == other
    except RecursionError:
        return False


def _strict(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, (Mapping, list, tuple)) and depth >= _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {clean(str(key)): _strict(one, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(one, depth + 1) for one in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


# -- calls and their results


class _Ids:
    """Ids as models' interfaces take them, each once."""

    def __init__(self, lost: Losses) -> None:
        self._lost = lost
        self._used: set[str] = set()

    def new(self, wanted: str) -> str:
        safe = _SAFE.sub("_", wanted)[:_LONGEST_ID] or f"call_{len(self._used) + 1}"
        found, n = safe, 1
        while found in self._used:
            n += 1
            found = f"{safe[: _LONGEST_ID - 8]}-{n}"
        self._used.add(found)
        self._lost[IDS] += found != wanted
        return found


def _name(wanted: str, lost: Losses) -> str:
    safe = _SAFE.sub("_", wanted)[:_LONGEST_NAME] or _NO_NAME
    lost[NAMES] += safe != wanted
    return safe


def _paired(steps: list[Step], lost: Losses) -> list[Step]:
    """Each call with its one result, which stands right behind the calls that were made together with it."""
    ids = _Ids(lost)
    calls: dict[str, list[int]] = {}  # calls that wait for a result, by their id
    results: dict[int, Step] = {}  # call → result
    made: dict[int, Step] = {}  # result → the call made up for it
    names: dict[int, tuple[str, str]] = {}
    for n, step in enumerate(steps):
        if step.kind == CALL:
            names[n] = (ids.new(step.id), _name(step.name, lost))
            calls.setdefault(step.id, []).append(n)
        elif step.kind == RESULT:
            waiting = calls.get(step.id, [])
            if waiting:
                results[waiting.pop(0)] = step._replace(input={})
            elif step.input:
                lost[FILES] += 1
            else:
                lost[UNCALLED] += 1
                made[n] = Step(CALL, "", step.at, ids.new(step.id), _name(step.name, lost))
    return list(_ordered(steps, results, made, names, lost))


def _ordered(
    steps: list[Step],
    results: Mapping[int, Step],
    made: Mapping[int, Step],
    names: Mapping[int, tuple[str, str]],
    lost: Losses,
) -> Iterator[Step]:
    together: list[Step] = []
    answered = False
    for n, step in enumerate(steps):
        if step.kind == CALL:
            if answered:  # the model had seen results before it made this one
                yield from together
                together, answered = [], False
            own, name = names[n]
            yield step._replace(id=own, name=name)
            found = results.get(n)
            lost[UNANSWERED] += found is None
            answer = found or Step(RESULT, NO_RESULT, step.at, failed=True)
            together.append(answer._replace(id=own, name=name))
            continue
        if step.kind == RESULT and n not in made:
            answered = True
            continue  # it stands behind its call
        yield from together
        together, answered = [], False
        if step.kind == RESULT:
            yield made[n]
            yield step._replace(id=made[n].id, name=made[n].name)
        else:
            yield step
    yield from together


# -- times


def _timed(steps: list[Step], started: str, lost: Losses) -> Iterator[Step]:
    known = next((step.at for step in steps if step.at), "") or when(started) or _EPOCH
    least = _moment(known)
    for n, step in enumerate(steps):
        at = _moment(step.at) if step.at else least
        if at < least or not step.at:
            lost[TIMES] += 1
            at = max(at, least)
        yield step._replace(at=_shown(at))
        apart = step.kind in (USER, SUMMARY) or (n + 1 < len(steps) and steps[n + 1].kind == SUMMARY)
        after = _APART if apart else _TICK
        least = _later(at, after)


def _moment(at: str) -> datetime:
    return datetime.fromisoformat(at)


def _later(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return at


def _shown(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def seconds(at: str) -> float:
    return _moment(at).timestamp()


def to_ms(at: str) -> str:
    """As JavaScript writes it."""
    return f"{at[:23]}Z"


# -- ids of our own making: the same session always gets the same ones


def chance(*names: object) -> bytes:
    return sha256("\0".join(map(str, names)).encode("utf-8", "surrogatepass")).digest()


def uuid4(*names: object) -> str:
    return _uuid(chance(*names)[:16], 4)


def uuid7(at: str, *names: object) -> str:
    """With the time in it, as clients sort by it."""
    ms = max(0, int(seconds(at) * 1000)) & (1 << 48) - 1
    return _uuid(ms.to_bytes(6, "big") + chance(*names)[:10], 7)


def _uuid(raw: bytes, version: int) -> str:
    digits = bytearray(raw)
    digits[6] = digits[6] & 0x0F | version << 4
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# -- grouped, for formats whose message holds thoughts, words and calls together


class Said(NamedTuple):
    """One message of the model: thoughts, then words, then calls with their results."""

    at: str
    thoughts: tuple[Step, ...]
    words: Step | None
    calls: tuple[tuple[Step, Step], ...]
    #: Whether the user speaks next (or nobody): then these words were an answer.
    last: bool


def grouped(steps: Iterable[Step]) -> Iterator[Step | Said]:
    """Prompts and summaries as they are, everything else as whole messages."""
    held = list(steps)
    results = {step.id: step for step in held if step.kind == RESULT}
    thoughts: list[Step] = []
    words: Step | None = None
    calls: list[tuple[Step, Step]] = []
    answered = False

    def said(last: bool) -> Iterator[Said]:
        nonlocal words, answered
        if thoughts or words or calls:
            at = (thoughts[0] if thoughts else words or calls[0][0]).at
            yield Said(at, tuple(thoughts), words, tuple(calls), last)
        thoughts.clear()
        calls.clear()
        words, answered = None, False

    for step in held:
        if step.kind == RESULT:
            answered = True
        elif step.kind in (USER, SUMMARY):
            yield from said(True)
            yield step
        elif step.kind == CALL:
            if answered:
                yield from said(False)  # the model had seen results before it made this one
            calls.append((step, results[step.id]))
        elif step.kind == ASSISTANT:
            if words or calls:
                yield from said(False)
            words = step
        else:
            if words or calls:
                yield from said(False)
            thoughts.append(step)
    yield from said(True)
