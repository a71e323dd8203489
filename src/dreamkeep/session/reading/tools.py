"""Agents' tools: what a call does, and how its result ended. Pure.

kind        shell, edit, plan, ask, todo …, by the tool's name: each agent's own (`Agent.tools`), or in tools.toml
a call      its command, its files, its plan, its questions
a result    exit code, error line, refusal with the user's words, the user's answers

The forms in which agents write them are in tools.toml, for all agents together.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from dreamkeep.agents.registry import tool_names

#: Only the beginning and the end of a long output are read.
_OUTPUT_END = 6000
_LONGEST_LINE = 1000
_LONGEST_JSON = 200_000
_DEEPEST_INPUT = 8
#: Tools of the agent itself. The result of any other tool may hold anybody's words: no refusal in it speaks for the user.
_OWN_TOOLS = ("shell", "edit", "todo", "task_new", "task_change", "plan", "ask")
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_HIDES_EXIT = re.compile(r"\|\|\s*true|;\s*(?:true|echo)\b")
_QUOTED_ANSWER = re.compile(r'"([^"]{3,400})"="([^"]{1,400})"')
_BOLD_ANSWER = re.compile(r"^\*\*(.{1,80}?)\*\*:\s*(.{1,400})$", re.MULTILINE)
_REPORTED_ANSWER = re.compile(
    r"^(?:the )?user (?:responded|selected|answered|chose|picked|replied)(?: with)?:\s*(.{1,400})", re.IGNORECASE
)


class ToolMessage(Protocol):
    """A message that holds a call, or the result of one."""

    @property
    def text(self) -> str: ...

    @property
    def tool(self) -> Mapping[str, Any] | None: ...


# -- texts


def texts_in(message: ToolMessage) -> Iterator[str]:
    """A message's text, and the texts in its tool's input."""
    yield message.text
    if message.tool:
        yield from texts_of_input(message.tool.get("input"))


def texts_of_input(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST_INPUT and isinstance(value, Mapping):
        for inner in value.values():
            yield from texts_of_input(inner, depth + 1)
    elif depth < _DEEPEST_INPUT and isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts_of_input(inner, depth + 1)
        if len(value) > 1 and all(isinstance(inner, str) for inner in value):
            yield " ".join(value)  # a command may be a list of words


def find_words(words: str, texts: Iterable[str]) -> str:
    """The words as they stand in one of the texts, where only white space may differ; "" when none has them."""
    wanted, listed = words.strip(), list(texts)
    if not wanted or any(wanted in text for text in listed):
        return wanted
    pattern = re.compile(r"\s+".join(map(re.escape, wanted.split())))
    return next((match[0] for text in listed if (match := pattern.search(text))), "")


# -- the table


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("tools.toml").read_text(encoding="utf-8"))


def input_names(name: str) -> Sequence[str]:
    """The names under which agents pass a command, a path, a plan …"""
    names: Sequence[str] = _table()["inputs"][name]
    return names


@cache
def _pattern(part: str, name: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in _table()[part][name]), flags)


@cache
def _key_line_patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _table()["ends"]["key"])


def is_kind(kind: str, tool: str) -> bool:
    name = tool.lower()
    return name in tool_names(kind) or name in _table()["names"][kind]


# -- calls


def command_of(value: object) -> str:
    """The command in a call's input: a text, or a list of words, perhaps with a shell before it."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in input_names("command") if value.get(name)), "")
    if isinstance(value, (list, tuple)):
        words = [str(word) for word in value]
        value = words[2] if len(words) > 2 and words[1] in ("-lc", "-c") else " ".join(words)
    return value.strip() if isinstance(value, str) else ""


def edited_files(value: object) -> list[str]:
    """The files that a call of an editing tool changes, by its input."""
    if isinstance(value, str):
        return patched_files(value)
    if not isinstance(value, Mapping) or str(value.get("command", "")) in input_names("reads"):
        return []
    for name, path in value.items():
        if str(name).lower() in input_names("path") and isinstance(path, str) and path:
            return [path]
    patches = [text for text in value.values() if isinstance(text, str) and "*** Begin Patch" in text]
    return [path for patch in patches for path in patched_files(patch)]


def patched_files(patch: str) -> list[str]:
    return _PATCHED_FILE.findall(patch[: _OUTPUT_END * 4])


def describe_call(name: str, value: object) -> str:
    """What a call does, in a few words: the command, the file, or the tool's name."""
    if is_kind("shell", name):
        return command_of(value)
    if is_kind("plan", name):
        return "the plan"
    paths = edited_files(value)
    return paths[0] if paths else name


def plan_of(value: object, result: str) -> str:
    if isinstance(value, Mapping):
        for name in input_names("plan"):
            if isinstance(value.get(name), str) and str(value[name]).strip():
                return str(value[name])
    return result.partition("Approved Plan:")[2]


# -- results


def outcome(command: str, result: ToolMessage) -> tuple[int | None, bool]:
    """(exit code if known, whether the command failed). A pipe hides the code: then the words of the output decide."""
    tool = result.tool or {}
    code = tool.get("exit_code")
    if not isinstance(code, int) or isinstance(code, bool):
        code = _printed_code(result.text)
    if tool.get("error") or code not in (0, None):
        return code, True
    hidden = code is None or "|" in command.replace("||", "\0") or _HIDES_EXIT.search(command) is not None
    ends = result.text[:_OUTPUT_END] + "\n" + result.text[-_OUTPUT_END:]
    return code, hidden and _pattern("ends", "failed", re.MULTILINE).search(ends) is not None


def _printed_code(text: str) -> int | None:
    for line in (*text[:_OUTPUT_END].split("\n")[:4], *text[-_OUTPUT_END:].split("\n")[-4:]):
        if match := _pattern("ends", "code").search(line.strip()[:_LONGEST_LINE]):
            return int(next(code for code in match.groups() if code is not None))
    return None


def output_of(result: ToolMessage) -> str:
    """What a command printed, without what the agent wraps around it. Long outputs are cut in the middle."""
    if result.text.startswith("{") and len(result.text) <= _LONGEST_JSON:
        wrapped = _json_object(result.text)
        if wrapped and isinstance(wrapped.get("output"), str):
            return _both_ends(wrapped["output"])
    return _both_ends(result.text)


def _json_object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _both_ends(text: str) -> str:
    return text if len(text) <= 2 * _OUTPUT_END else f"{text[:_OUTPUT_END]}\n{text[-_OUTPUT_END:]}"


def error_line(result: ToolMessage) -> str:
    """The line of a failed command's output that says what was wrong; "" if none does."""
    lines = [line.rstrip()[:_LONGEST_LINE] for line in output_of(result).split("\n")]
    telling = [line for line in lines if line.strip() and not _pattern("ends", "empty").match(line.strip())]
    keys = (line for pattern in _key_line_patterns() for line in telling if pattern.match(line))
    line = next(keys, telling[-1] if telling else "")
    # Without the time, and without what an agent writes before the output.
    return _pattern("ends", "stamp").sub("", line.strip(), count=1)


# -- what the user said to a call


def is_approval(result: ToolMessage) -> bool:
    """Whether the user agreed to a plan."""
    return _begins(result.text, "approved")


def refusal_words(result: ToolMessage, tool: str) -> str | None:
    """The user's words when they did not allow the call of `tool` ("" for none); None if they allowed it.

    A call that ran was allowed, whatever its output says.
    """
    facts = result.tool or {}
    code = facts.get("exit_code")
    if facts.get("error") is False or (isinstance(code, int) and code >= 0):
        return None
    words = _refusal(result.text)
    return "" if words and not any(is_kind(kind, tool) for kind in _OWN_TOOLS) else words


def _refusal(text: str) -> str | None:
    if text.startswith("{") and "BLOCKED" in text[:2000]:
        return "" if '"BLOCKED: User denied' in text[:2000] else None
    if not _begins(text, "refused"):
        return None
    lead = _pattern("refused", "said").search(text[:2000])
    words = text[lead.end() :][:4000] if lead else ""
    if end := _pattern("refused", "ends").search(words):
        words = words[: end.start()]
    words = words.strip().strip('"').strip()
    return "" if _pattern("refused", "not_said").match(words) else words


def _begins(text: str, part: str) -> bool:
    return _pattern(part, "begins").match(text.lstrip()[:500]) is not None


# -- what the agent asked, and what the user answered


def questions(value: object) -> list[tuple[str, list[str]]]:
    """(question, its options) each, by the input of a call that asks the user."""
    found = []
    for _, asked, question in _questions_in(value):
        options = asked.get("options") or asked.get("choices")
        found.append((question, [_option(option) for option in options] if isinstance(options, list) else []))
    return found


def _questions_in(value: object) -> list[tuple[str, Mapping[Any, Any], str]]:
    """(the question's own id, else its number; all that is said of it; its words) each."""
    if not isinstance(value, Mapping):
        return []
    several = value.get("questions")
    found = []
    for n, asked in enumerate(several if isinstance(several, list) else [value]):
        if isinstance(asked, Mapping):
            words = next((str(asked[name]) for name in input_names("question") if isinstance(asked.get(name), str)), "")
            if words:
                found.append((str(asked.get("id", n)), asked, words))
    return found


def _option(option: object) -> str:
    if not isinstance(option, Mapping):
        return str(option)
    label = str(option.get("label") or option.get("title") or option.get("value") or "")
    more = str(option.get("description") or "")
    return f"{label}: {more}" if label and more else label or more


def answers(value: object, result: str) -> list[tuple[str, str]]:
    """(question, answer) each, in the forms in which agents write them."""
    asked = [(own, words) for own, _, words in _questions_in(value)]
    if quoted := _QUOTED_ANSWER.findall(result[: _OUTPUT_END * 2]):
        return [(question, answer) for question, answer in quoted]
    words = result.strip()
    if words.startswith("{"):
        return _answers_in_json(asked, result)
    if bold := _BOLD_ANSWER.findall(result[: _OUTPUT_END * 2]):
        return [(asked[n][1] if n < len(asked) else head, answer) for n, (head, answer) in enumerate(bold)]
    if (reported := _REPORTED_ANSWER.match(words)) and asked:
        return [(asked[0][1], reported[1].strip())]
    if len(asked) == 1 and 0 < len(words) <= 200 and "\n" not in words:
        return [(asked[0][1], words)]
    return []


def _answers_in_json(asked: list[tuple[str, str]], result: str) -> list[tuple[str, str]]:
    answer = _json_object(result) or {}
    if isinstance(answer.get("user_response"), str) and (asked or answer.get("question")):
        return [(str(answer.get("question") or asked[0][1]), answer["user_response"])]
    by_id = answer.get("answers")
    if not isinstance(by_id, Mapping):
        return []
    found = [
        (question, _answer_text(by_id.get(own, by_id.get(question, by_id.get(str(n))))))
        for n, (own, question) in enumerate(asked)
    ]
    return [(question, words) for question, words in found if words]


def _answer_text(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("answers", value.get("answer", value.get("value")))
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return value if isinstance(value, str) else ""
