"""A session as a short reading copy: about a tenth of its tokens, with every typed word. Pure and deterministic.

    what the user typed             whole
    what the user pasted            head, tail and size, if it is long
    the agent's prose               shortened; whole if a short prompt answers it
    a tool call                     one line; neighbouring calls that only read share one
    a tool's result                 refusals, answers, errors and exit codes; nothing else
    injected text                   left out: summaries, hooks, reminders, our own packs, copied beginnings of forks

Every line names the place of its words (`seq` as `show` writes it), so a quote can be checked against the raw record. origin.py
decides whose words they are. `find_ending` reads from the same copy how a session stood when it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.session.messages import Message
from dreamkeep.session.reading import tools
from dreamkeep.session.reading.origin import AGENT, ANSWER, INJECTED, OWN_WORDS, PASTED, TOOL, TYPED, HeardWords, split_origins
from dreamkeep.session.reading.own_answers import recalled
from dreamkeep.session.reading.packs import without_packs

#: So much of each is kept, in characters: (head, tail).
_PASTE = (320, 160)
_LAST_WORDS = (300, 500)
_ANSWERED = (600, 3400)
_REMARK = (200, 0)
_PLAN = (700, 200)
_COMMAND, _ERROR, _PATH = 160, 180, 100
#: A shorter prompt refers to what the agent said before it.
_SHORT = 200
#: So many calls that only read are named in a line.
_NAMED = 6

_CAUSE = re.compile(
    r"\b(?:because|cause|issue|problem|bug|reason|fail(?:s|ed|ing|ure)?|error|wrong|missing|broken|instead|actually|turns out"
    r"|conflict|mismatch|never|doesn['’]t|can['’]t|won['’]t|found)\b",
    re.IGNORECASE,
)
_BLANKS = re.compile(r"[ \t]{2,}")
_LINES = re.compile(r"\n{2,}")


class DigestLine(NamedTuple):
    """`role`: user, assistant, tool or system. `origin`: whose words they are (origin.py). `what`: how the line is labelled."""

    seq: str
    role: str
    origin: str
    what: str
    text: str


class SessionEnding(NamedTuple):
    """How a session stood when it stopped, uncut. `prompts`: what the user typed or answered; `answers`: what the agent said
    to that, each in order. `failed`: the last command, if it failed. `files`: the changed files."""

    prompts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    failed: str = ""
    files: tuple[str, ...] = ()


def digest(messages: Sequence[Message], cwd: str = "", heard: Callable[[str], bool] = lambda line: False) -> list[DigestLine]:
    """`cwd`: the session's folder; paths below it are shortened. `heard`: whether an agent wrote a line in an earlier session,
    so that it is pasted here."""
    return list(_Digest(messages, cwd, heard).lines())


def find_unheard(messages: Sequence[Message]) -> frozenset[str]:
    """The user's lines that are new in this session and long enough to recognise: the lines for `heard`."""
    asked: list[str] = []

    def collect(line: str) -> bool:
        asked.append(line)
        return False

    list(_Digest(messages, "", collect).lines())
    return frozenset(asked)


def find_ending(messages: Sequence[Message], cwd: str = "") -> SessionEnding:
    made, texts = _Digest(messages, cwd), {place_of(message): message.text for message in messages}
    prompts: dict[str, list[str]] = {}
    answers: list[str] = []
    for line in made.lines():
        if line.origin in OWN_WORDS:
            prompts.setdefault(line.seq, []).append(line.text)
        elif line.what == "agent":
            answers.append(texts[line.seq])
    return SessionEnding(tuple(map("\n".join, prompts.values())), tuple(answers), made.failed, tuple(made.files))


def render(lines: Iterable[DigestLine]) -> str:
    """For a model or a person: `[place] who: words`."""
    return "\n".join(f"[{line.seq}] {line.what}: {line.text}" for line in lines)


def place_of(message: Message) -> str:
    return f"{message.seq}.{message.n}" if message.n else str(message.seq)


def fold(text: str, head: int, tail: int) -> str:
    """The beginning and the end of a text, and how much is left out between them."""
    cut = len(text) - head - tail
    if cut <= 80:
        return text
    end = text[-tail:].lstrip() if tail else ""
    return f"{text[:head].rstrip()} [… {cut:,} characters left out …] {end}".rstrip()


class _Digest:
    def __init__(self, messages: Sequence[Message], cwd: str, heard: Callable[[str], bool] = lambda line: False) -> None:
        self._root = f"{cwd.rstrip('/')}/" if cwd.strip("/") else ""
        ours, unread = recalled(messages), (f.REASONING, f.SYSTEM)
        self._messages = [m for m in messages if (m.seq, m.n) not in ours and m.role not in unread]
        self._results = _results(self._messages)
        self._heard, self._heard_before = HeardWords(), heard
        #: The changed files, and how the last command failed, if it did.
        self.files: dict[str, None] = {}
        self.failed = ""
        #: The agent's prose since the last prompt. The next prompt decides how much of it is shown.
        self._prose: list[Message] = []
        self._seen: list[DigestLine] = []
        self._copied = False

    def lines(self) -> Iterator[DigestLine]:
        for message in self._messages:
            yield from self._line(message)
        yield from self._agent_words("")
        yield from self._looked()

    def _line(self, message: Message) -> Iterator[DigestLine]:
        if message.mark == f.COPIED:
            if not self._copied:
                yield DigestLine(place_of(message), "system", INJECTED, "copied", "the beginning was copied from another session")
            self._copied = True
        elif message.role == f.SUMMARY:
            yield from self._agent_words("")
            yield from self._looked()
            yield DigestLine(place_of(message), "system", INJECTED, "compacted", "the agent's context was squeezed here")
        elif message.role == f.USER:
            yield from self._user(message)
        elif message.mark not in ("", f.PARTIAL):
            return
        elif message.role == f.ASSISTANT:
            yield from self._assistant(message)
        elif message.role == f.TOOL:
            self._heard.add(message.text)

    # -- the user

    def _user(self, message: Message) -> Iterator[DigestLine]:
        if message.mark not in ("", f.PARTIAL, f.REWOUND):
            return
        text = without_packs(message.text)
        spans = [span for span in split_origins(text, self._was_heard) if span.origin != INJECTED]
        if not spans:
            return
        yield from self._agent_words(text)
        yield from self._looked()
        back = " (taken back)" if message.mark == f.REWOUND else ""
        for span in spans:
            words = text[span.start : span.end].strip()
            if span.origin == PASTED:
                yield DigestLine(place_of(message), f.USER, PASTED, f"user pasted{back}", fold(_dense(words), *_PASTE))
            else:
                yield DigestLine(place_of(message), f.USER, TYPED, f"user{back}", words)

    def _was_heard(self, line: str) -> bool:
        return self._heard.has(line) or self._heard_before(line)

    # -- the agent

    def _assistant(self, message: Message) -> Iterator[DigestLine]:
        if message.text.strip():
            yield from self._remarks()
            yield from self._looked()
            self._prose.append(message)
            self._heard.add(message.text)
        if message.tool:
            yield from self._call(message)

    def _agent_words(self, prompt: str) -> Iterator[DigestLine]:
        """The agent's last words before a prompt: whole, if that prompt refers to them."""
        if not self._prose:
            return
        last = self._prose.pop()
        yield from self._remarks()
        ends = _ANSWERED if prompt and len(prompt) <= _SHORT else _LAST_WORDS
        yield _agent(last, fold(_dense(last.text), *ends))

    def _remarks(self) -> Iterator[DigestLine]:
        """The agent's earlier words: only those that name a cause."""
        for message in self._prose:
            words = _dense(message.text)
            if _CAUSE.search(words[:600]):
                yield _agent(message, fold(words, *_REMARK))
        self._prose = []

    # -- tools

    def _call(self, message: Message) -> Iterator[DigestLine]:
        tool = message.tool or {}
        name, given = str(tool.get("name") or "tool"), tool.get("input")
        result = self._results.get((message.seq, message.n))
        refused = tools.refusal_words(result, name) if result else None
        if result is not None and refused is not None:
            yield from self._tool_line(
                message, result, f"the user refused {fold(_dense(tools.describe_call(name, given)), 120, 0)}"
            )
            if refused:
                yield DigestLine(place_of(result), f.USER, ANSWER, "user, refusing", refused)
        elif tools.is_kind("ask", name):
            yield from self._asked(message, result)
        elif tools.is_kind("plan", name):
            yield from self._planned(message, result)
        elif tools.is_kind("shell", name):
            yield from self._ran(message, result)
        elif result is not None and (result.tool or {}).get("error"):
            words = _dense(f"{name} {self._target(given)} → error: {fold(result.text.strip(), _ERROR, 0)}")
            yield from self._tool_line(message, message, words)
        elif not _is_todo(name):
            self._edited(name, given, result)
            self._seen.append(DigestLine(place_of(message), f.ASSISTANT, AGENT, name, self._target(given)))

    def _edited(self, name: str, given: object, result: Message | None) -> None:
        if result is not None and tools.is_kind("edit", name):
            self.files.update(dict.fromkeys(map(self._short_path, tools.edited_files(given))))

    def _tool_line(self, call: Message, at: Message, text: str) -> Iterator[DigestLine]:
        yield from self._remarks()
        yield from self._looked()
        yield DigestLine(place_of(at), f.TOOL, TOOL, "tool", text)

    def _ran(self, message: Message, result: Message | None) -> Iterator[DigestLine]:
        command = tools.command_of((message.tool or {}).get("input"))
        if not command:
            return
        line = _dense(command.split("\n", 1)[0])
        shown = fold(line.replace(self._root, "") if self._root else line, _COMMAND, 0)
        code, failed = tools.outcome(command, result) if result else (None, False)
        self.failed = ""
        if result is not None and failed:
            ended = f"exit {code}" if code is not None else "failed"
            error = _dense(tools.error_line(result))
            self.failed = f"{command} → {ended}{': ' if error else ''}{error}"
            yield from self._tool_line(message, message, f"{shown} → {ended}{': ' if error else ''}{fold(error, _ERROR, 0)}")
        else:
            self.files.update(dict.fromkeys(map(self._short_path, tools.patched_files(command))))
            self._seen.append(DigestLine(place_of(message), f.ASSISTANT, AGENT, "ran", f"{shown} → ok" if result else shown))

    def _asked(self, message: Message, result: Message | None) -> Iterator[DigestLine]:
        given = (message.tool or {}).get("input")
        yield from self._remarks()
        yield from self._looked()
        for question, options in tools.questions(given):
            listed = "".join(f"\n  - {fold(_dense(option), 300, 0)}" for option in options)
            yield DigestLine(place_of(message), f.ASSISTANT, AGENT, "agent asked", f"{_dense(question)}{listed}")
        for question, answer in tools.answers(given, result.text) if result else ():
            about = f" (to “{fold(_dense(question), 100, 0)}”)" if len(tools.questions(given)) > 1 else ""
            yield DigestLine(place_of(result or message), f.USER, ANSWER, f"user answered{about}", answer)

    def _planned(self, message: Message, result: Message | None) -> Iterator[DigestLine]:
        yield from self._remarks()
        yield from self._looked()
        plan = tools.plan_of((message.tool or {}).get("input"), result.text if result else "")
        ended = " (the user approved it)" if result is not None and tools.is_approval(result) else ""
        yield DigestLine(place_of(message), f.ASSISTANT, AGENT, f"agent's plan{ended}", fold(_dense(plan), *_PLAN))

    def _target(self, given: object) -> str:
        """The object of a call: a pattern, a path, a question."""
        if isinstance(given, str):
            return fold(_dense(given), _PATH, 0)
        if not isinstance(given, Mapping):
            return ""
        if isinstance(given.get("pattern"), str):
            return fold(_dense(given["pattern"]), _PATH, 0)
        paths = tools.edited_files(given)
        if paths:
            return self._short_path(paths[0])
        texts = (value for value in given.values() if isinstance(value, str) and value.strip())
        return fold(_dense(next(texts, "")), _PATH, 0)

    def _short_path(self, path: str) -> str:
        path = path.removeprefix(self._root)
        return path if len(path) <= _PATH else f"…{path[-_PATH:]}"

    def _looked(self) -> Iterator[DigestLine]:
        """Neighbouring calls that only read: one line for each tool."""
        seen, self._seen = self._seen, []
        while seen:
            first = seen[0]
            same = [line for line in seen if line.what == first.what]
            seen = [line for line in seen if line.what != first.what]
            if first.what == "ran":
                yield from (line._replace(role=f.TOOL, origin=TOOL) for line in same)
                continue
            named = list(dict.fromkeys(line.text for line in same if line.text))
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            yield DigestLine(first.seq, f.TOOL, TOOL, "tool", f"{first.what} {', '.join(named[:_NAMED])}{more}".strip())


def _agent(message: Message, text: str) -> DigestLine:
    return DigestLine(place_of(message), f.ASSISTANT, AGENT, "agent", text)


def _results(messages: Sequence[Message]) -> dict[tuple[int, int], Message]:
    """The result of each call. An id may be used again in a later turn: a result answers the last call before it."""
    waiting: dict[str, tuple[int, int]] = {}
    found: dict[tuple[int, int], Message] = {}
    for message in messages:
        tool = message.tool or {}
        own = str(tool.get("id") or "")
        if message.role == f.ASSISTANT and message.tool and own:
            waiting[own] = message.seq, message.n
        elif message.role == f.TOOL and own in waiting:
            found[waiting.pop(own)] = message
        elif message.role == f.TOOL and {"name", "input"} <= tool.keys():
            found[message.seq, message.n] = message
    return found


def _is_todo(name: str) -> bool:
    return any(tools.is_kind(kind, name) for kind in ("todo", "task_new", "task_change"))


def _dense(text: str) -> str:
    """The text without blanks that are only layout."""
    return _LINES.sub("\n", _BLANKS.sub(" ", text)).strip()
