"""What was done in a session, whatever the agent: messages → steps. Pure.

    calls and results, paired by id ─► Ran, Edited, Refused, Answered
    words of user and model         ─► Prompt, Reply

Every step has the place where it stands (`n`: the how-manieth message; `seq` for the evidence). What bears a mark is not there at
all. What agents' tools do is in session/tools.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dreamkeep.dream.given import Given, Said
from dreamkeep.session import tools


class Prompt(NamedTuple):
    """The user's own words."""

    n: int
    known: bool
    said: Said


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


class Refused(NamedTuple):
    """The user did not allow a call. `what`: the command, the file or the plan; `words`: what he said to it, verbatim."""

    n: int
    known: bool
    tool: str
    what: str
    words: str
    result: Said
    call: Said


class Answered(NamedTuple):
    n: int
    known: bool
    question: str
    answer: str
    result: Said


Step = Prompt | Reply | Ran | Edited | Refused | Answered


def steps(given: Given) -> list[Step]:
    flat = [(turn.known, said) for turn in given.turns for said in turn.messages if not said.mark]
    results = _results([said for _, said in flat])
    found: list[Step] = []
    for n, (known, said) in enumerate(flat):
        if said.role == "user" and not said.tool:
            found.append(Prompt(n, known, said))
        elif _is_both(said):
            found += _call(n, known, said, said)
        elif said.role == "assistant" and said.tool:
            if said.text.strip():
                found.append(Reply(n, known, said))
            found += _call(n, known, said, results.get(n))
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


def _call(n: int, known: bool, said: Said, result: Said | None) -> Iterator[Step]:
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
    elif tools.is_kind("ask", name) and result is not None and not (result.tool or {}).get("error"):
        yield from (Answered(n, known, asked, answer, result) for asked, answer in tools.answers(given, result.text))


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
