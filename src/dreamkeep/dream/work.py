"""What was done in a session, whatever the agent: messages → steps. Pure.

    calls and results, paired by id ─► Ran, Edited, Committed, Refused, Approved, Answered, Todos
    words of user and model         ─► Prompt, Reply

Every step has the place where it stands (`n`: the how-manieth message; `seq` for the evidence). What bears a mark is not there at
all. What agents' tools do is in session/tools.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.given import Given, Said
from dreamkeep.session import tools

#: Of a long output only its beginning and its end are looked at.
_LOOK = 6000
_MESSAGE = re.compile(
    r"""\bgit\b[^|;&]*\bcommit\b[^|;&]*?\s(?:-\w*m|--message)[= ]?\s*(?:"((?:[^"\\]|\\.){1,400})"|'([^']{1,400})')"""
)
_HEREDOC = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b[^\n]{0,200}<<-?\s*['\"]?(\w+)['\"]?\n(.{1,400})", re.DOTALL)


class Prompt(NamedTuple):
    """The user's own words. `mid`: sent while the agent was at work."""

    n: int
    known: bool
    said: Said
    mid: bool = False


class Reply(NamedTuple):
    """The model's words."""

    n: int
    known: bool
    said: Said


class Ran(NamedTuple):
    """A command. `failed` None: nobody knows. `key`: the same for what is the same command but for how it was called."""

    n: int
    known: bool
    command: str
    key: str
    exit_code: int | None
    failed: bool | None
    call: Said
    result: Said | None


class Edited(NamedTuple):
    n: int
    known: bool
    path: str
    call: Said


class Committed(NamedTuple):
    n: int
    known: bool
    message: str
    call: Said
    result: Said


class Refused(NamedTuple):
    """The user did not allow a call. `what`: the command, the file or the plan; `words`: what he said to it, verbatim."""

    n: int
    known: bool
    tool: str
    what: str
    words: str
    result: Said
    call: Said


class Approved(NamedTuple):
    n: int
    known: bool
    plan: str
    call: Said
    result: Said


class Answered(NamedTuple):
    n: int
    known: bool
    question: str
    answer: str
    result: Said


class Todo(NamedTuple):
    """`call`: where it stands; of tasks that are made one by one, each in its own."""

    text: str
    is_open: bool
    call: Said


class Todos(NamedTuple):
    """The whole list as it is now."""

    n: int
    known: bool
    entries: tuple[Todo, ...]
    call: Said


Step = Prompt | Reply | Ran | Edited | Committed | Refused | Approved | Answered | Todos


def steps(given: Given) -> list[Step]:
    flat = [(turn.known, said) for turn in given.turns for said in turn.messages if not said.mark]
    results = _results([said for _, said in flat])
    found: list[Step] = []
    tasks: dict[str, Todo] = {}
    for n, (known, said) in enumerate(flat):
        if said.role == "user" and not said.tool:
            mid = bool(found) and isinstance(found[-1], (Ran, Edited))
            found.append(Prompt(n, known, said, mid))
        elif _is_both(said):
            found += _call(n, known, said, said, tasks)
        elif said.role == "assistant" and said.tool:
            if said.text.strip():
                found.append(Reply(n, known, said))
            found += _call(n, known, said, results.get(n), tasks)
        elif said.role == "assistant" and said.text.strip():
            found.append(Reply(n, known, said))
    return found


def answered(given: Given) -> dict[str, list[str]]:
    """By seq: what the user answered to a question of the agent's, or said to a call that he did not allow. A client writes that
    into the tool's result."""
    found: dict[str, list[str]] = {}
    for step in steps(given):
        words = step.answer if isinstance(step, Answered) else step.words if isinstance(step, Refused) else ""
        if words and isinstance(step, (Answered, Refused)):
            found.setdefault(step.result.seq, []).append(words)
    return found


def _is_both(said: Said) -> bool:
    """A call and its result in one record, as one's own agent may write them."""
    return said.role == "tool" and said.tool is not None and {"name", "input"} <= said.tool.keys()


def _results(flat: Sequence[Said]) -> dict[int, Said]:
    """By the place of the call. Ids may come again in a later turn: a result belongs to the last call before it."""
    waiting: dict[str, int] = {}
    found: dict[int, Said] = {}
    for n, said in enumerate(flat):
        own = str((said.tool or {}).get("id") or "")
        if said.role == "assistant" and said.tool and own:
            waiting[own] = n
        elif said.role == "tool" and own in waiting:
            found[waiting.pop(own)] = said
    return found


def _call(n: int, known: bool, said: Said, result: Said | None, tasks: dict[str, Todo]) -> Iterator[Step]:
    tool = said.tool or {}
    name = str(tool.get("name") or "").lower()
    given = tool.get("input")
    if result is not None and (words := tools.refusal_words(result, name)) is not None:
        yield Refused(n, known, name, tools.describe_call(name, given), words, result, said)
    elif tools.is_kind("shell", name):
        yield from _shell(n, known, said, result)
    elif tools.is_kind("edit", name):
        if result is not None and not (result.tool or {}).get("error"):
            yield from (Edited(n, known, path, said) for path in tools.edited_files(given))
    elif tools.is_kind("plan", name):
        if result is not None and tools.is_approval(result):
            yield Approved(n, known, tools.plan_of(given, result.text), said, result)
    elif tools.is_kind("ask", name):
        if result is not None and not (result.tool or {}).get("error"):
            yield from (Answered(n, known, asked, answer, result) for asked, answer in tools.answers(given, result.text))
    elif entries := _todos(name, said, result, tasks):
        yield Todos(n, known, entries, said)


# -- commands


def _shell(n: int, known: bool, said: Said, result: Said | None) -> Iterator[Step]:
    command = tools.command_of((said.tool or {}).get("input"))
    if not command:
        return
    if "*** Begin Patch" in command:
        yield from (Edited(n, known, path, said) for path in tools.patched_files(command))
        return
    code, failed = tools.outcome(command, result) if result else (None, None)
    yield Ran(n, known, command, key_of(command), code, failed, said, result)
    if result and failed is False and (message := commit_message(command)):
        yield Committed(n, known, message, said, result)


_BEFORE = re.compile(
    r"""^(?:cd\s+(?:"[^"]*"|'[^']*'|\S+)\s*(?:&&|;)\s*|(?:[A-Z_][A-Z0-9_]*=(?:"[^"]*"|'[^']*'|\S*)\s+){1,8}|(?:time|timeout(?:\s+-\S+){0,4}\s+\S+|nice|env|command|set\s+-\S+\s*(?:&&|;))\s+)"""
)
_BEHIND = re.compile(
    r"""\s*(?:2>&1|1>&2|>\s*/dev/null|2>\s*/dev/null|&>\s*\S+|\|\s*(?:tail|head|tee|cat|less|grep|rg|sed|awk)\b[^|]*|\|\|\s*true|;\s*echo\b.*)\s*$"""
)


def key_of(command: str) -> str:
    """Without the folder, the environment and the cutting of its output: the same command is the same however it is looked at."""
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
    """Into which folder below `cwd` it goes first; "" for `cwd` itself, and where nobody can tell."""
    goes = _GOES.match(command)
    folder = next(filter(None, goes.groups()), "") if goes else ""
    root = cwd.rstrip("/")
    if root and folder.startswith(f"{root}/"):
        folder = folder[len(root) + 1 :]
    folder = folder.removeprefix("./").rstrip("/")
    return "" if folder in (".", "-") or folder.startswith(("/", "~", "$", "..")) or "$" in folder else folder


def quoted(said: Said, words: str) -> str:
    """`words` as they stand in that message, or ""."""
    escaped = json.dumps(words, ensure_ascii=False)[1:-1]
    ascii_ = json.dumps(words)[1:-1]
    return next((one for one in (words, escaped, ascii_) if one and one in said.text), "")


def commit_message(command: str) -> str:
    if "commit" not in command or "--amend" in command:
        return ""
    head = command[:4000]
    if heredoc := _HEREDOC.search(head):
        return heredoc[2].strip().split("\n")[0]
    found = _MESSAGE.search(head)
    words = (found[1] or found[2] or "") if found else ""
    return "" if words.startswith("$(") else words.strip().split("\n")[0]


# -- lists of what is to be done


def _todos(name: str, said: Said, result: Said | None, tasks: dict[str, Todo]) -> tuple[Todo, ...]:
    given = (said.tool or {}).get("input")
    if tools.is_kind("todo", name):
        return tuple(Todo(text, is_open, said) for text, is_open in todos(given))
    if not isinstance(given, Mapping):
        return ()
    if tools.is_kind("task_new", name):
        own = re.search(r"#(\d+)", result.text) if result else None
        tasks[own[1] if own else str(len(tasks) + 1)] = Todo(_first(given, "task_text"), True, said)
    elif tools.is_kind("task_change", name):
        own_id, status = str(given.get("taskId", given.get("id", ""))), str(given.get("status", ""))
        if own_id in tasks and status:
            tasks[own_id] = tasks[own_id]._replace(is_open=status.lower() not in tools.done_words())
    else:
        return ()
    return tuple(one for one in tasks.values() if one.text)


def _first(given: Mapping[Any, Any], names: str) -> str:
    return next(
        (str(given[one]) for one in tools.input_names(names) if isinstance(given.get(one), str) and given[one].strip()), ""
    )


def todos(given: object) -> tuple[tuple[str, bool], ...]:
    if isinstance(given, str):
        return _checklist(given)
    if not isinstance(given, Mapping):
        return ()
    for name, value in given.items():
        if name.lower() not in tools.input_names("todos") and name.lower() != "content":
            continue
        if isinstance(value, str):
            return _checklist(value)
        if isinstance(value, list):
            found = [(_first(one, "todo_text"), str(one.get("status", ""))) for one in value if isinstance(one, Mapping)]
            return tuple((text, status.lower() not in tools.done_words()) for text, status in found if text)
    return ()


_BOX = re.compile(r"^\s*(?:[-*]|\d+[.)])\s*\[([ xX>~-])\]\s*(.{1,300})$", re.MULTILINE)


def _checklist(text: str) -> tuple[tuple[str, bool], ...]:
    return tuple((words.strip(), box not in "xX") for box, words in _BOX.findall(text[: _LOOK * 2]))
