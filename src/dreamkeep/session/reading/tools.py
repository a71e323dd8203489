"""Agents' tools: what a call does, and how its result ended. One table for all agents: tools.toml. Pure.

kind        shell, edit, plan, ask, todo …      by the tool's name
a call      its command, its files, its plan, its questions
a result    exit code, error line, refusal with the user's words, the user's answers
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

#: Only the beginning and the end of a long output are read.
_LOOK = 6000
_LINE = 1000
#: Tools that the agent brings along. What another one gives back may be anybody's words: no refusal in it speaks for the user.
_OWN_TOOLS = ("shell", "edit", "todo", "task_new", "task_change", "plan", "ask")
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_ANSWERED = re.compile(r'"([^"]{3,400})"="([^"]{1,400})"')
_BOLD = re.compile(r"^\*\*(.{1,80}?)\*\*:\s*(.{1,400})$", re.MULTILINE)
_RESPONDED = re.compile(
    r"^(?:the )?user (?:responded|selected|answered|chose|picked|replied)(?: with)?:\s*(.{1,400})", re.IGNORECASE
)


class ToolMessage(Protocol):
    """A message that holds what a tool gave back, or a call."""

    @property
    def text(self) -> str: ...

    @property
    def tool(self) -> Mapping[str, Any] | None: ...


# -- texts


def texts_in(message: ToolMessage) -> Iterator[str]:
    """What stands in a message: its text, and the texts in a tool's input."""
    yield message.text
    if message.tool:
        yield from texts_of_input(message.tool.get("input"))


def texts_of_input(given: object, depth: int = 0) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif depth < 8 and isinstance(given, Mapping):
        for inner in given.values():
            yield from texts_of_input(inner, depth + 1)
    elif depth < 8 and isinstance(given, (list, tuple)):
        for inner in given:
            yield from texts_of_input(inner, depth + 1)
        if len(given) > 1 and all(isinstance(inner, str) for inner in given):
            yield " ".join(given)  # a command may be given word by word


def find_words(words: str, texts: Iterable[str]) -> str:
    """The words as they stand there; line breaks and runs of blanks may differ, nothing else. "" when they are not there."""
    wanted, listed = words.strip(), list(texts)
    if not wanted or any(wanted in text for text in listed):
        return wanted
    pattern = re.compile(r"\s+".join(map(re.escape, wanted.split())))
    return next((found[0] for text in listed if (found := pattern.search(text))), "")


# -- the table


@cache
def table() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("tools.toml").read_text(encoding="utf-8"))


def input_names(name: str) -> Sequence[str]:
    """Under which names agents hand over a command, a path, a plan …"""
    found: Sequence[str] = table()["inputs"][name]
    return found


@cache
def _names(kind: str) -> frozenset[str]:
    return frozenset(table()["names"][kind])


@cache
def _pattern(part: str, name: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return _any_of(table()[part][name], flags)


@cache
def _compile_each(part: str, name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_any_of((one,), re.IGNORECASE) for one in table()[part][name])


def _any_of(patterns: Iterable[str], flags: int) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in patterns), flags)


def is_kind(kind: str, tool: str) -> bool:
    return tool.lower() in _names(kind)


# -- calls


def command_of(given: object) -> str:
    """A command as the agent's tool was given it: a text, or a list of words, perhaps with a shell before."""
    if isinstance(given, Mapping):
        given = next((given[one] for one in input_names("command") if given.get(one)), "")
    if isinstance(given, (list, tuple)):
        words = [str(one) for one in given]
        given = words[2] if len(words) > 2 and words[1] in ("-lc", "-c") else " ".join(words)
    return given.strip() if isinstance(given, str) else ""


def edited_files(given: object) -> list[str]:
    """Which files a call of an editing tool changes."""
    if isinstance(given, str):
        return patched_files(given)
    if not isinstance(given, Mapping):
        return []
    if str(given.get("command", "")) in input_names("reads"):
        return []
    for name, value in given.items():
        if str(name).lower() in input_names("path") and isinstance(value, str) and value:
            return [value]
    texts = [value for value in given.values() if isinstance(value, str) and "*** Begin Patch" in value]
    return [path for value in texts for path in patched_files(value)]


def patched_files(patch: str) -> list[str]:
    return _PATCHED.findall(patch[: _LOOK * 4])


def describe_call(name: str, given: object) -> str:
    """In a few words, what a call does: the command, the file, or the tool's name."""
    if is_kind("shell", name):
        return command_of(given)
    if is_kind("plan", name):
        return "the plan"
    paths = edited_files(given)
    return paths[0] if paths else name


def plan_of(given: object, told: str) -> str:
    if isinstance(given, Mapping):
        for one in input_names("plan"):
            if isinstance(given.get(one), str) and str(given[one]).strip():
                return str(given[one])
    return told.partition("Approved Plan:")[2]


# -- results


def outcome(command: str, result: ToolMessage) -> tuple[int | None, bool]:
    """(exit code if known, whether the command failed). A pipe hides the code: then the output's words decide."""
    tool = result.tool or {}
    code = tool.get("exit_code")
    if not isinstance(code, int) or isinstance(code, bool):
        code = _told_code(result.text)
    if tool.get("error") or code not in (0, None):
        return code, True
    hidden = (
        code is None or "|" in command.replace("||", "\0") or re.search(r"\|\|\s*true|;\s*(?:true|echo)\b", command) is not None
    )
    return code, hidden and _looks_failed(result.text)


def _told_code(text: str) -> int | None:
    lines = [line.strip() for line in (*text[:_LOOK].split("\n")[:4], *text[-_LOOK:].split("\n")[-4:])]
    for line in lines:
        if found := _pattern("ends", "code").search(line[:_LINE]):
            return int(next(one for one in found.groups() if one is not None))
    return None


def _looks_failed(text: str) -> bool:
    ends = text[:_LOOK] + "\n" + text[-_LOOK:]
    return _pattern("ends", "failed", re.MULTILINE).search(ends) is not None


def output_of(result: ToolMessage) -> str:
    """What a command printed, without what the agent wraps around it. Long outputs are cut in the middle."""
    text = _both_ends(result.text)
    if result.text.startswith("{") and len(result.text) <= 200_000:
        try:
            told = json.loads(result.text)
        except (ValueError, RecursionError):
            return text
        if isinstance(told, Mapping) and isinstance(told.get("output"), str):
            return _both_ends(told["output"])
    return text


def _both_ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOK else f"{text[:_LOOK]}\n{text[-_LOOK:]}"


def error_line(result: ToolMessage) -> str:
    """The line of a failed command's output that says what was wrong; "" if none does."""
    lines = [line.rstrip()[:_LINE] for line in output_of(result).split("\n")]
    told = [line for line in lines if line.strip() and not _pattern("ends", "empty").match(line.strip())]
    for found in _compile_each("ends", "key"):
        for line in told:
            if found.match(line):
                return _without_stamp(line)
    return _without_stamp(told[-1]) if told else ""


def _without_stamp(line: str) -> str:
    """Without the time, and without what an agent writes before the output."""
    return _pattern("ends", "stamp").sub("", line.strip(), count=1)


# -- what the user said to a call


def is_approval(result: ToolMessage) -> bool:
    """The user agreed to a plan."""
    return _begins(result.text, "approved")


def refusal_words(result: ToolMessage, tool: str) -> str | None:
    """What the user said when he did not allow the call of `tool` ("": nothing); None: it was allowed. What was run was allowed,
    whatever its output says."""
    about = result.tool or {}
    code = about.get("exit_code")
    if about.get("error") is False or (isinstance(code, int) and code >= 0):
        return None
    words = _refusal(result.text)
    return "" if words and not any(is_kind(kind, tool) for kind in _OWN_TOOLS) else words


def _refusal(text: str) -> str | None:
    if text.startswith("{") and "BLOCKED" in text[:2000]:
        return "" if '"BLOCKED: User denied' in text[:2000] else None
    if not _begins(text, "refused"):
        return None
    found = _pattern("refused", "said").search(text[:2000])
    words = text[found.end() :][:4000] if found else ""
    if end := _pattern("refused", "ends").search(words):
        words = words[: end.start()]
    words = words.strip().strip('"').strip()
    return "" if _pattern("refused", "not_said").match(words) else words


def _begins(text: str, part: str) -> bool:
    return _pattern(part, "begins").match(text.lstrip()[:500]) is not None


def answers(given: object, told: str) -> list[tuple[str, str]]:
    """(question, answer) each, in the forms that agents write them in."""
    asked = _questions(given)
    if found := _ANSWERED.findall(told[: _LOOK * 2]):
        return [(question, answer) for question, answer in found]
    if told.lstrip().startswith("{"):
        return _answers_json(asked, told)
    if bold := _BOLD.findall(told[: _LOOK * 2]):
        return [(asked[n][1] if n < len(asked) else head, answer) for n, (head, answer) in enumerate(bold)]
    if (said := _RESPONDED.match(told.strip())) and asked:
        return [(asked[0][1], said[1].strip())]
    if len(asked) == 1 and 0 < len(told.strip()) <= 200 and "\n" not in told.strip():
        return [(asked[0][1], told.strip())]
    return []


def questions(given: object) -> list[tuple[str, list[str]]]:
    """(question, its options) each, as a call that asks the user names them."""
    if not isinstance(given, Mapping):
        return []
    several = given.get("questions")
    asked = several if isinstance(several, list) else [given]
    found = []
    for one in asked:
        if isinstance(one, Mapping) and (words := _question(one)):
            listed = one.get("options") or one.get("choices")
            found.append((words, [_option(each) for each in listed] if isinstance(listed, list) else []))
    return found


def _question(one: Mapping[Any, Any]) -> str:
    return next((str(one[key]) for key in input_names("question") if isinstance(one.get(key), str)), "")


def _option(one: object) -> str:
    if not isinstance(one, Mapping):
        return str(one)
    label, more = str(one.get("label") or one.get("title") or one.get("value") or ""), str(one.get("description") or "")
    return f"{label}: {more}" if label and more else label or more


def _questions(given: object) -> list[tuple[str, str]]:
    """(its own id, question) each."""
    if not isinstance(given, Mapping):
        return []
    several = given.get("questions")
    asked = several if isinstance(several, list) else [given]
    found = [(str(one.get("id", n)), _question(one)) for n, one in enumerate(asked) if isinstance(one, Mapping)]
    return [one for one in found if one[1]]


def _answers_json(asked: list[tuple[str, str]], told: str) -> list[tuple[str, str]]:
    try:
        answer = json.loads(told)
    except (ValueError, RecursionError):
        return []
    if not isinstance(answer, Mapping):
        return []
    if isinstance(answer.get("user_response"), str) and (asked or answer.get("question")):
        return [(str(answer.get("question") or asked[0][1]), answer["user_response"])]
    by_id = answer.get("answers")
    found: list[tuple[str, str]] = []
    if isinstance(by_id, Mapping):
        for n, (own, question) in enumerate(asked):
            words = _flat(by_id.get(own, by_id.get(question, by_id.get(str(n)))))
            if words:
                found.append((question, words))
    return found


def _flat(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("answers", value.get("answer", value.get("value")))
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return value if isinstance(value, str) else ""
