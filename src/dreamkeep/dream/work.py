"""What was done in a session, whatever the agent: messages → steps. Pure.

    calls and results, paired by id ─► Ran, Edited, Committed, Refused, Approved, Answered, Todos
    words of user and model         ─► Prompt, Reply

Every step has the place where it stands (`n`: the how-manieth message; `seq` for the evidence). What bears a mark is not there at
all. Agents' tools and the forms of their answers are in data/tools.toml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from dreamkeep.dream import lexicon
from dreamkeep.dream.given import Given, Said

#: Tools that the agent brings along. What another one gives back may be anybody's words: no refusal in it speaks for the user.
_OWN_TOOLS = ("shell", "edit", "todo", "task_new", "task_change", "plan", "ask")
#: Of a long output only its beginning and its end are looked at.
_LOOK = 6000
_LINE = 300
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_MESSAGE = re.compile(
    r"""\bgit\b[^|;&]*\bcommit\b[^|;&]*?\s(?:-\w*m|--message)[= ]?\s*(?:"((?:[^"\\]|\\.){1,400})"|'([^']{1,400})')"""
)
_HEREDOC = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b[^\n]{0,200}<<-?\s*['\"]?(\w+)['\"]?\n(.{1,400})", re.DOTALL)
_ANSWERED = re.compile(r'"([^"]{3,400})"="([^"]{1,400})"')
_BOLD = re.compile(r"^\*\*(.{1,80}?)\*\*:\s*(.{1,400})$", re.MULTILINE)
_RESPONDED = re.compile(
    r"^(?:the )?user (?:responded|selected|answered|chose|picked|replied)(?: with)?:\s*(.{1,400})", re.IGNORECASE
)


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
    if result is not None and (words := refused(result)) is not None:
        own = any(_is(kind, name) for kind in _OWN_TOOLS)
        yield Refused(n, known, name, what(name, given), words if own else "", result, said)
    elif _is("shell", name):
        yield from _shell(n, known, said, result)
    elif _is("edit", name):
        if result is not None and not (result.tool or {}).get("error"):
            yield from (Edited(n, known, path, said) for path in edited(given))
    elif _is("plan", name):
        if result is not None and _begins(result.text, "approved"):
            yield Approved(n, known, plan_of(given, result.text), said, result)
    elif _is("ask", name):
        if result is not None and not (result.tool or {}).get("error"):
            yield from (Answered(n, known, asked, answer, result) for asked, answer in answers(given, result.text))
    elif entries := _todos(name, said, result, tasks):
        yield Todos(n, known, entries, said)


def _is(what: str, name: str) -> bool:
    return name in lexicon.names("tools", "names", what)


def is_shell(tool: str) -> bool:
    return _is("shell", tool)


# -- commands


def _shell(n: int, known: bool, said: Said, result: Said | None) -> Iterator[Step]:
    command = command_of((said.tool or {}).get("input"))
    if not command:
        return
    if "*** Begin Patch" in command:
        yield from (Edited(n, known, path, said) for path in _PATCHED.findall(command[: _LOOK * 4]))
        return
    code, failed = outcome(command, result) if result else (None, None)
    yield Ran(n, known, command, key_of(command), code, failed, said, result)
    if result and failed is False and (message := commit_message(command)):
        yield Committed(n, known, message, said, result)


def command_of(given: object) -> str:
    """A command as the agent's tool was given it: a text, or a list of words, perhaps with a shell before."""
    if isinstance(given, Mapping):
        given = next((given[one] for one in table_of("inputs", "command") if given.get(one)), "")
    if isinstance(given, (list, tuple)):
        words = [str(one) for one in given]
        given = words[2] if len(words) > 2 and words[1] in ("-lc", "-c") else " ".join(words)
    return given.strip() if isinstance(given, str) else ""


def table_of(part: str, name: str) -> Sequence[str]:
    found: Sequence[str] = lexicon.table("tools")[part][name]
    return found


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


def outcome(command: str, result: Said) -> tuple[int | None, bool]:
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
        if found := lexicon.pattern("tools", "ends", "code").search(line[:_LINE]):
            return int(next(one for one in found.groups() if one is not None))
    return None


def _looks_failed(text: str) -> bool:
    return lexicon.pattern("tools", "ends", "failed", re.MULTILINE).search(text[:_LOOK] + "\n" + text[-_LOOK:]) is not None


def output_of(said: Said) -> str:
    """What a command printed: without what the agent wraps around it. Long outputs are cut in the middle."""
    text = said.text if len(said.text) <= 2 * _LOOK else f"{said.text[:_LOOK]}\n{said.text[-_LOOK:]}"
    if said.text.startswith("{") and len(said.text) <= 200_000:
        try:
            told = json.loads(said.text)
        except (ValueError, RecursionError):
            return text
        if isinstance(told, Mapping) and isinstance(told.get("output"), str):
            whole: str = told["output"]
            return whole if len(whole) <= 2 * _LOOK else f"{whole[:_LOOK]}\n{whole[-_LOOK:]}"
    return text


def quoted(said: Said, words: str) -> str:
    """`words` as they stand in that message, or ""."""
    escaped = json.dumps(words, ensure_ascii=False)[1:-1]
    ascii_ = json.dumps(words)[1:-1]
    return next((one for one in (words, escaped, ascii_) if one and one in said.text), "")


def key_line(said: Said) -> str:
    """The line of a failed command's output that says what was wrong; "" if none does."""
    lines = [line.rstrip()[:_LINE] for line in output_of(said).split("\n")]
    told = [line for line in lines if line.strip() and not lexicon.pattern("tools", "ends", "empty").match(line.strip())]
    for found in lexicon.each("tools", "ends", "key"):
        for line in told:
            if found.match(line):
                return _without_stamp(line)
    return _without_stamp(told[-1]) if told else ""


def error_kind(ran: Ran) -> str:
    """Of what kind the error was, in words of ours: no word of the output gets into it, but for a class of errors we know."""
    if ran.result is None:
        return ""
    for text in (key_line(ran.result), output_of(ran.result)):
        classes = _classes().search(text)
        if kind := _error_in(text, "kinds") or (classes[0] if classes else "") or _error_in(text, "broad"):
            return kind
    return f"exit {ran.exit_code}" if ran.exit_code else ""


def _error_in(text: str, part: str) -> str:
    return next((name for name, signs in _error_kinds(part) if signs.search(text)), "")


@cache
def _error_kinds(part: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    flags = re.IGNORECASE | re.MULTILINE
    return tuple((str(one["name"]), lexicon.any_of(one["signs"], flags=flags)) for one in lexicon.table("tools")["errors"][part])


@cache
def _classes() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(lexicon.table('tools')['errors']['classes'])})\b")


def _without_stamp(line: str) -> str:
    """Without the time, and without what an agent writes before the output."""
    return lexicon.pattern("tools", "ends", "stamp").sub("", line.strip(), count=1)


def commit_message(command: str) -> str:
    if "commit" not in command or "--amend" in command:
        return ""
    head = command[:4000]
    if heredoc := _HEREDOC.search(head):
        return heredoc[2].strip().split("\n")[0]
    found = _MESSAGE.search(head)
    words = (found[1] or found[2] or "") if found else ""
    return "" if words.startswith("$(") else words.strip().split("\n")[0]


# -- edits


def edited(given: object) -> list[str]:
    """Which files a call of an editing tool changes."""
    if isinstance(given, str):
        return _PATCHED.findall(given[: _LOOK * 4])
    if not isinstance(given, Mapping):
        return []
    if str(given.get("command", "")) in table_of("inputs", "reads"):
        return []
    for name, value in given.items():
        if name.lower() in table_of("inputs", "path") and isinstance(value, str) and value:
            return [value]
    texts = [value for value in given.values() if isinstance(value, str) and "*** Begin Patch" in value]
    return [path for value in texts for path in _PATCHED.findall(value[: _LOOK * 4])]


# -- what the user said to calls


def _begins(text: str, part: str) -> bool:
    return lexicon.pattern("tools", part, "begins").match(text.lstrip()[:500]) is not None


def refused(result: Said) -> str | None:
    """What the user said when he did not allow the call ("": nothing); None: it was allowed. What was run was allowed, whatever
    its output says."""
    text, tool = result.text, result.tool or {}
    code = tool.get("exit_code")
    if tool.get("error") is False or (isinstance(code, int) and code >= 0):
        return None
    if text.startswith("{") and "BLOCKED" in text[:2000]:
        return "" if '"BLOCKED: User denied' in text[:2000] else None
    if not _begins(text, "refused"):
        return None
    found = lexicon.pattern("tools", "refused", "said").search(text[:2000])
    words = text[found.end() :][:4000] if found else ""
    if end := lexicon.pattern("tools", "refused", "ends").search(words):
        words = words[: end.start()]
    words = words.strip().strip('"').strip()
    return "" if lexicon.pattern("tools", "refused", "not_said").match(words) else words


def what(name: str, given: object) -> str:
    """In a few words, what a call would have done."""
    if _is("shell", name):
        return command_of(given)
    if _is("plan", name):
        return "the plan"
    paths = edited(given)
    return paths[0] if paths else name


def plan_of(given: object, told: str) -> str:
    if isinstance(given, Mapping):
        for one in table_of("inputs", "plan"):
            if isinstance(given.get(one), str) and str(given[one]).strip():
                return str(given[one])
    return told.partition("Approved Plan:")[2]


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


def _questions(given: object) -> list[tuple[str, str]]:
    """(its own id, question) each."""
    if not isinstance(given, Mapping):
        return []
    several = given.get("questions")
    asked = several if isinstance(several, list) else [given]
    found = []
    for n, one in enumerate(asked):
        if isinstance(one, Mapping):
            words = next((str(one[key]) for key in table_of("inputs", "question") if isinstance(one.get(key), str)), "")
            found.append((str(one.get("id", n)), words))
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


# -- lists of what is to be done


def _todos(name: str, said: Said, result: Said | None, tasks: dict[str, Todo]) -> tuple[Todo, ...]:
    given = (said.tool or {}).get("input")
    if _is("todo", name):
        return tuple(Todo(text, is_open, said) for text, is_open in todos(given))
    if not isinstance(given, Mapping):
        return ()
    if _is("task_new", name):
        own = re.search(r"#(\d+)", result.text) if result else None
        tasks[own[1] if own else str(len(tasks) + 1)] = Todo(_first(given, "task_text"), True, said)
    elif _is("task_change", name):
        own_id, status = str(given.get("taskId", given.get("id", ""))), str(given.get("status", ""))
        if own_id in tasks and status:
            tasks[own_id] = tasks[own_id]._replace(is_open=status.lower() not in table_of("status", "done"))
    else:
        return ()
    return tuple(one for one in tasks.values() if one.text)


def _first(given: Mapping[Any, Any], names: str) -> str:
    return next(
        (str(given[one]) for one in table_of("inputs", names) if isinstance(given.get(one), str) and given[one].strip()), ""
    )


def todos(given: object) -> tuple[tuple[str, bool], ...]:
    if isinstance(given, str):
        return _checklist(given)
    if not isinstance(given, Mapping):
        return ()
    for name, value in given.items():
        if name.lower() not in table_of("inputs", "todos") and name.lower() != "content":
            continue
        if isinstance(value, str):
            return _checklist(value)
        if isinstance(value, list):
            found = [(_first(one, "todo_text"), str(one.get("status", ""))) for one in value if isinstance(one, Mapping)]
            return tuple((text, status.lower() not in table_of("status", "done")) for text, status in found if text)
    return ()


_BOX = re.compile(r"^\s*(?:[-*]|\d+[.)])\s*\[([ xX>~-])\]\s*(.{1,300})$", re.MULTILINE)


def _checklist(text: str) -> tuple[tuple[str, bool], ...]:
    return tuple((words.strip(), box not in "xX") for box, words in _BOX.findall(text[: _LOOK * 2]))
