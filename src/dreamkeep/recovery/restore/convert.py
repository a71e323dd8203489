"""Turns a session into the plain talk that every agent's format can hold, and counts what does not go into it. Pure.

Left out and counted are messages that were undone, and those of the client itself (environment, reminders, hooks, our own packs):
the agent that resumes adds its own. What a fork copied from its parent stays, because its model sees it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.shared.talk import (
    ASSISTANT,
    CALL,
    NO_RESULT,
    REASONING,
    RESULT,
    SUMMARY,
    USER,
    Losses,
    Talk,
    TalkStep,
    clean,
    moment,
)
from dreamkeep.agents.shared.values import parse_time
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary, title_of

_NO_NAME = "unknown_tool"
_LONGEST_NAME = 64
_LONGEST_ID = 64
_SAFE = re.compile(r"[^A-Za-z0-9_-]")
_EPOCH = "1970-01-01T00:00:00.000000Z"
_TICK = timedelta(milliseconds=1)
#: The gap around prompts and summaries: in Hermes, rows within some 20 ms count as a compaction's copies.
_APART = timedelta(milliseconds=50)
_SPOKEN = {f.USER: USER, f.ASSISTANT: ASSISTANT, f.REASONING: REASONING, f.SUMMARY: SUMMARY}
_DEEPEST = 100

#: What did not go in, as shown to the user: the keys of `Losses`.
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
SURROGATES = "messages with invalid characters (lone surrogates), shown as U+FFFD"
TIMES = "unknown or out-of-order times: adjusted"


def build_talk(summary: Summary, messages: Iterable[Message], about: Mapping[str, Any], cwd: str = "") -> tuple[Talk, Losses]:
    """`about`: what else is known of the session (model, branch). `cwd`: a folder that replaces the session's own."""
    lost: Losses = Counter()
    steps = _pair_results(list(_list_steps(messages, lost)), lost)
    steps_with_times = tuple(_set_times(steps, summary.started_at or "", lost))
    first = next((step.text for step in steps_with_times if step.kind == USER), "")
    title = clean(summary.title)
    talk = Talk(
        summary.id,
        clean(cwd or summary.cwd),
        "" if title == title_of(first) else title,
        clean(str(about.get("model") or "")),
        clean(str(about.get("branch") or "")),
        steps_with_times[0].at if steps_with_times else summary.started_at or _EPOCH,
        steps_with_times,
        title_of(first),
    )
    return talk, lost


# -- messages → steps


def _list_steps(messages: Iterable[Message], lost: Losses) -> Iterator[TalkStep]:
    for message in messages:
        why = _why_left_out(message)
        if why:
            lost[why] += 1
            continue
        text = clean(message.text)
        lost[SURROGATES] += text != message.text
        at = parse_time(message.at) or ""
        tool = message.tool or {}
        if message.role == f.TOOL:
            beside = {"beside": True} if tool.get("file") else {}
            yield TalkStep(
                RESULT, text, at, str(tool.get("id") or ""), str(tool.get("name") or ""), beside, tool.get("error") is True
            )
            continue
        kind = _SPOKEN[message.role]
        if text.strip():
            yield TalkStep(kind, text, at)
        elif kind != ASSISTANT or not tool:
            lost[EMPTY] += 1
        if kind == ASSISTANT and tool:
            yield TalkStep(
                CALL, "", at, str(tool.get("id") or ""), str(tool.get("name") or ""), _plain_object(tool.get("input"), lost)
            )


def _why_left_out(message: Message) -> str:
    if message.mark == f.REWOUND:
        return REWOUND
    # A result belongs to its call, whatever memory was injected with it.
    kept_marks = ("", f.COPIED, f.PARTIAL, f.INJECTED) if message.role == f.TOOL else ("", f.COPIED, f.PARTIAL)
    if message.role == f.SYSTEM or (message.mark not in kept_marks and message.role != f.SUMMARY):
        return CLIENT
    return "" if message.role in _SPOKEN or message.role == f.TOOL else ROLES


def _plain_object(value: object, lost: Losses) -> dict[str, Any]:
    """An object that strict JSON can hold."""
    strict = _strict_value(value, 0)
    plain = strict if isinstance(strict, dict) else {} if value is None else {"input": strict}
    lost[INPUTS] += value is not None and not _is_same(plain, value)
    return plain


def _is_same(first: object, second: object) -> bool:
    try:
        return first == second
    except RecursionError:
        return False


def _strict_value(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, (Mapping, list, tuple)) and depth >= _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {clean(str(key)): _strict_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict_value(item, depth + 1) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


# -- calls and their results


class _Ids:
    """Makes ids that models' interfaces accept, each only once."""

    def __init__(self, lost: Losses) -> None:
        self._lost = lost
        self._used: set[str] = set()

    def new(self, wanted: str) -> str:
        safe = _SAFE.sub("_", wanted)[:_LONGEST_ID] or f"call_{len(self._used) + 1}"
        id, n = safe, 1
        while id in self._used:
            n += 1
            id = f"{safe[: _LONGEST_ID - 8]}-{n}"
        self._used.add(id)
        self._lost[IDS] += id != wanted
        return id


def _name(wanted: str, lost: Losses) -> str:
    safe = _SAFE.sub("_", wanted)[:_LONGEST_NAME] or _NO_NAME
    lost[NAMES] += safe != wanted
    return safe


def _pair_results(steps: list[TalkStep], lost: Losses) -> list[TalkStep]:
    """Gives each call one result, right after the calls that were made together with it."""
    ids = _Ids(lost)
    calls: dict[str, list[int]] = {}  # calls that wait for a result, by their id
    results: dict[int, TalkStep] = {}  # call → result
    made: dict[int, TalkStep] = {}  # result → the call made up for it
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
                made[n] = TalkStep(CALL, "", step.at, ids.new(step.id), _name(step.name, lost))
    return list(_order_steps(steps, results, made, names, lost))


def _order_steps(
    steps: list[TalkStep],
    results: Mapping[int, TalkStep],
    made: Mapping[int, TalkStep],
    names: Mapping[int, tuple[str, str]],
    lost: Losses,
) -> Iterator[TalkStep]:
    pending: list[TalkStep] = []  # the results of the calls that were made together
    answered = False
    for n, step in enumerate(steps):
        if step.kind == CALL:
            if answered:  # the model had seen results before it made this one
                yield from pending
                pending, answered = [], False
            id, name = names[n]
            yield step._replace(id=id, name=name)
            result = results.get(n)
            lost[UNANSWERED] += result is None
            result = result or TalkStep(RESULT, NO_RESULT, step.at, failed=True)
            pending.append(result._replace(id=id, name=name))
            continue
        if step.kind == RESULT and n not in made:
            answered = True
            continue  # it comes right after its call
        yield from pending
        pending, answered = [], False
        if step.kind == RESULT:
            yield made[n]
            yield step._replace(id=made[n].id, name=made[n].name)
        else:
            yield step
    yield from pending


# -- times


def _set_times(steps: list[TalkStep], started: str, lost: Losses) -> Iterator[TalkStep]:
    """Every step gets a time, later than the one before."""
    least = moment(next((step.at for step in steps if step.at), "") or parse_time(started) or _EPOCH)
    for n, step in enumerate(steps):
        at = moment(step.at) if step.at else least
        if at < least or not step.at:
            lost[TIMES] += 1
            at = max(at, least)
        yield step._replace(at=_format_time(at))
        is_apart = step.kind in (USER, SUMMARY) or (n + 1 < len(steps) and steps[n + 1].kind == SUMMARY)
        least = _add_time(at, _APART if is_apart else _TICK)


def _add_time(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return at


def _format_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
