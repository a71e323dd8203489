"""The steps of a session, the same for every agent: messages → steps. Pure.

    calls and results, paired by id ─► Ran, Refused, Answered
    words of the user               ─► Prompt

`known`: the step is context. Messages with a mark give no steps. What agents' tools do is in session/reading/tools.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dreamkeep.dream.backends.api import Given, GivenMessage
from dreamkeep.session.reading import tools


class PromptStep(NamedTuple):
    """The user's own words."""

    known: bool
    said: GivenMessage


class CommandStep(NamedTuple):
    """A command. `failed`: None where that isn't known. `key`: equal for commands that differ only in how they were called."""

    known: bool
    command: str
    key: str
    failed: bool | None
    call: GivenMessage
    result: GivenMessage | None


class RefusalStep(NamedTuple):
    """The user did not allow a call. `words`: his reason, verbatim."""

    known: bool
    words: str
    result: GivenMessage


class AnswerStep(NamedTuple):
    known: bool
    answer: str
    result: GivenMessage


Step = PromptStep | CommandStep | RefusalStep | AnswerStep


def steps(given: Given) -> list[Step]:
    flat = [(turn.known, said) for turn in given.turns for said in turn.messages if not said.mark]
    results = _results([said for _, said in flat])
    found: list[Step] = []
    for n, (known, said) in enumerate(flat):
        if said.role == "user" and not said.tool:
            found.append(PromptStep(known, said))
        elif _is_both(said):
            found += _call(known, said, said)
        elif said.role == "assistant" and said.tool:
            found += _call(known, said, results.get(n))
    return found


def answered(given: Given) -> dict[str, list[str]]:
    """By seq: the user's answers to questions of the agent, and his reasons for not allowing a call. The client writes them
    into the tool's result."""
    found: dict[str, list[str]] = {}
    for step in steps(given):
        words = step.answer if isinstance(step, AnswerStep) else step.words if isinstance(step, RefusalStep) else ""
        if words and isinstance(step, (AnswerStep, RefusalStep)):
            found.setdefault(step.result.seq, []).append(words)
    return found


def _is_both(said: GivenMessage) -> bool:
    """Whether it is a call and its result in one record, as a Python agent may write them."""
    return said.role == "tool" and said.tool is not None and {"name", "input"} <= said.tool.keys()


def _results(flat: Sequence[GivenMessage]) -> dict[int, GivenMessage]:
    """Results by the place of their call. An id may be used again in a later turn: a result belongs to the last call before
    it."""
    waiting: dict[str, int] = {}
    found: dict[int, GivenMessage] = {}
    for n, said in enumerate(flat):
        own = str((said.tool or {}).get("id") or "")
        if said.role == "assistant" and said.tool and own:
            waiting[own] = n
        elif said.role == "tool" and own in waiting:
            found[waiting.pop(own)] = said
    return found


def _call(known: bool, said: GivenMessage, result: GivenMessage | None) -> Iterator[Step]:
    tool = said.tool or {}
    name = str(tool.get("name") or "").lower()
    given = tool.get("input")
    if result is not None and (words := tools.refusal_words(result, name)) is not None:
        yield RefusalStep(known, words, result)
    elif tools.is_kind("shell", name):
        yield from _shell(known, said, result)
    elif tools.is_kind("ask", name) and result is not None and not (result.tool or {}).get("error"):
        yield from (AnswerStep(known, answer, result) for _, answer in tools.answers(given, result.text))


# -- commands


def _shell(known: bool, said: GivenMessage, result: GivenMessage | None) -> Iterator[Step]:
    command = tools.command_of((said.tool or {}).get("input"))
    if command and "*** Begin Patch" not in command:
        failed = tools.outcome(command, result)[1] if result else None
        yield CommandStep(known, command, key_of(command), failed, said, result)


_BEFORE = re.compile(
    r"""^(?:cd\s+(?:"[^"]*"|'[^']*'|\S+)\s*(?:&&|;)\s*|(?:[A-Z_][A-Z0-9_]*=(?:"[^"]*"|'[^']*'|\S*)\s+){1,8}|(?:time|timeout(?:\s+-\S+){0,4}\s+\S+|nice|env|command|set\s+-\S+\s*(?:&&|;))\s+)"""
)
_BEHIND = re.compile(
    r"""\s*(?:2>&1|1>&2|>\s*/dev/null|2>\s*/dev/null|&>\s*\S+|\|\s*(?:tail|head|tee|cat|less|grep|rg|sed|awk)\b[^|]*|\|\|\s*true|;\s*echo\b.*)\s*$"""
)


def key_of(command: str) -> str:
    """The command without folder, environment and filters of its output."""
    found = " ".join(command[:2000].split())
    for shorter in (_BEFORE, _BEHIND):
        for _ in range(6):
            cut = shorter.sub("", found)
            if cut == found:
                break
            found = cut
    return found


_GOES = re.compile(r"""\s*cd\s+(?:"([^"]*)"|'([^']*)'|([^\s;&]+))\s*(?:&&|;)""")


def folder_in(command: str, cwd: str) -> str:
    """The folder below `cwd` to which the command changes first; "" for `cwd` itself, and where that can't be told."""
    goes = _GOES.match(command)
    folder = next(filter(None, goes.groups()), "") if goes else ""
    root = cwd.rstrip("/")
    if root and folder.startswith(f"{root}/"):
        folder = folder[len(root) + 1 :]
    folder = folder.removeprefix("./").rstrip("/")
    return "" if folder in (".", "-") or folder.startswith(("/", "~", "$", "..")) or "$" in folder else folder


def quoted(said: GivenMessage, words: str) -> str:
    """`words` as they are written in that message, perhaps escaped; "" where they are not there."""
    escaped = json.dumps(words, ensure_ascii=False)[1:-1]
    ascii_ = json.dumps(words)[1:-1]
    return next((one for one in (words, escaped, ascii_) if one and one in said.text), "")
