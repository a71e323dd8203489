"""pi's sessions: one JSON object a line, a header first, then entries that form a tree by `id`/`parentId`.

    session                       header: where it runs; `parentSession` (older: `branchedFrom`): path of the file it came from
    message                       user, assistant, toolResult; bashExecution (the user's own `!` command), custom (an extension's)
    compaction, branch_summary    a summary that replaces older entries; one that replaces a branch that the user left
    model_change, session_info    model; the user's name for the session
    custom_message                an extension's words to the model

A turn begins with a user's message and ends by `stopReason`: stop or length (completed), error (failed; pi may try again and
still complete it), aborted (cancelled). After a crash, nothing says how the turn ended: it stays open.

Each entry has the entry before it as its parent. If the parent is an earlier entry, the user went back to it, and the messages
behind it are rewound. (Entries without words, such as a change of the model, may come first; the next entry with words shows the
rewind. If the user returns to a branch that was left, its messages stay rewound.) Ids have only 8 digits and identify an entry
within its session. A fork begins with copies of its parent's entries, with their ids and times: those older than its header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import count, digest, items, parse_time, table, text

_SILENT = frozenset(("thinking_level_change", "label", "custom", "usage", "context_edit", "context_transform", "ephemeral"))
_ENDS = {"stop": "completed", "length": "completed", "error": "failed", "aborted": "cancelled"}
#: How many entries are remembered, to know to which of them the user went back.
_ENTRIES = 128
_LONGEST_ID = 200


class Reader:
    """`state`: the current turn; the latest entries, each with its first message; the entry to which the user went back."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterator[Fact]:
        data = record.data
        if data is None:
            return  # a broken line, which was reported where the file was split into lines
        kind = text(data.get("type"))
        handle = _HANDLERS.get(kind)
        if handle is not None:
            found = self._with_rewind(data, list(handle(self, data)))
            yield from _as_copies(found) if self._is_copy(data) else found
        else:
            yield from self._with_rewind(data, [] if kind in _SILENT else [f.UnknownRecord(kind or "?")])

    def _is_copy(self, data: Mapping[str, Any]) -> bool:
        forked, at = text(self.state.get("forked_at")), parse_time(data.get("timestamp"))
        if forked and data.get("type") != "session" and at and at >= forked:
            self.state["forked_at"] = ""  # from here on the entries are the fork's own, whatever the clock says
        return bool(self.state.get("forked_at")) and data.get("type") != "session"

    def _header(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        yield f.SessionPlaced(cwd=text(data.get("cwd")), model=text(data.get("modelId")))
        for name in ("parentSession", "branchedFrom"):
            parent = session_of(text(data.get(name)))
            if parent:
                self.state["forked_at"] = parse_time(data.get("timestamp")) or ""
                yield f.Edge("fork", parent, f"{name} in its header", parse_time(data.get("timestamp")))

    def _model(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        if text(data.get("modelId")):
            yield f.SessionPlaced(model=text(data.get("modelId")))

    def _title(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        if text(data.get("name")).strip():
            yield f.SessionTitled(text(data.get("name")), 2)

    def _compaction(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        key, at = _key(data), parse_time(data.get("timestamp"))
        before, after = _tokens(data.get("tokensBefore")), _tokens(data.get("tokensAfter"))
        yield f.Signal("transcript", "completed", at, id=key, before=before, after=after)
        if text(data.get("summary")).strip():
            yield f.MessageSaid(f.SUMMARY, text(data.get("summary")), key, at)

    def _branch_summary(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        if text(data.get("summary")).strip():
            yield f.MessageSaid(f.SUMMARY, text(data.get("summary")), _key(data), parse_time(data.get("timestamp")))

    def _extension_message(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        words = _flat(data.get("content"))
        if words.strip():
            mark = f.INJECTED if f.PACK in words else f.HOOK
            yield f.MessageSaid(f.SYSTEM, words, _key(data), parse_time(data.get("timestamp")), mark=mark)

    # -- messages

    def _message(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        message = table(data.get("message"))
        role = text(message.get("role"))
        key = _key(data)
        at = parse_time(data.get("timestamp")) or parse_time(message.get("timestamp"))
        if role == "user":
            yield from self._prompt(data, key, at, _flat(message.get("content")))
        elif role == "assistant":
            yield from self._answer(message, key, at)
        elif role == "toolResult":
            yield _result(message, key, at)
        elif role == "bashExecution":
            yield f.MessageSaid(f.USER, f"! {text(message.get('command'))}", key, at, mark=f.META)
            if text(message.get("output")).strip():
                yield f.MessageSaid(f.SYSTEM, text(message.get("output")), f"{key}.2", at, mark=f.META)
        elif role in ("custom", "hookMessage"):
            yield from self._extension_message({**data, "content": message.get("content")})
        elif role in ("compactionSummary", "branchSummary"):
            yield f.MessageSaid(f.SUMMARY, text(message.get("summary")), key, at)
        else:
            yield f.UnknownRecord(f"message/{role or '?'}")

    def _prompt(self, data: Mapping[str, Any], key: str, at: str | None, prompt: str) -> Iterator[Fact]:
        if not prompt.strip():
            return
        self.state["turn"] = key
        yield f.TurnBegan(key, prompt, at, key)
        yield f.MessageSaid(f.USER, prompt, key, at, key)

    # -- the tree

    def _with_rewind(self, data: Mapping[str, Any], found: list[Fact]) -> Iterator[Fact]:
        """The facts of an entry, after a rewind if its place in the tree shows one."""
        own = text(data.get("id"))[:_LONGEST_ID]
        entries = items(self.state.get("entries"))
        if not own or data.get("type") == "session" or any(entry[0] == own for entry in entries):
            yield from found
            return
        back = self._rewound_to(data, entries)
        first = next((fact for fact in found if isinstance(fact, f.MessageSaid)), None)
        if back and first and first.role not in (f.ASSISTANT, f.REASONING, f.TOOL):
            yield f.MessagesRewound(parse_time(data.get("timestamp")), back, by=first.key)
        # The first entry with a message shows the rewind. Until then it is remembered, for entries below this one.
        self.state["back"] = [own, back] if back and not first else None
        message = first.key if first and len(first.key) <= _LONGEST_ID else ""
        self.state["entries"] = [*entries, [own, message]][-_ENTRIES:]
        yield from found

    def _rewound_to(self, data: Mapping[str, Any], entries: list[Any]) -> str:
        """The first message behind this entry's parent; "" if the parent is the latest entry, or unknown."""
        parent = data.get("parentId")
        above = text(parent)[:_LONGEST_ID]
        waiting = items(self.state.get("back"))
        if waiting and waiting[0] == above:
            return str(waiting[1])
        if parent is None and "parentId" in data and len(entries) < _ENTRIES:
            behind = entries  # before all of them
        else:
            place = next((n for n, entry in enumerate(entries) if above and entry[0] == above), None)
            behind = entries[place + 1 :] if place is not None else []
        return next((entry[1] for entry in behind if entry[1]), "")

    def _answer(self, message: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
        ending = text(message.get("stopReason"))
        mark = f.PARTIAL if ending == "aborted" else ""
        for n, block in enumerate(_blocks(message.get("content"))):
            kind = text(block.get("type"))
            name = f"{key}.{n + 1}" if n else key
            if kind == "text":
                if text(block.get("text")).strip():
                    yield f.MessageSaid(f.ASSISTANT, text(block.get("text")), name, at, mark=mark)
            elif kind == "thinking":
                if text(block.get("thinking")).strip():
                    yield f.MessageSaid(f.REASONING, text(block.get("thinking")), name, at, mark=mark)
            elif kind == "toolCall":
                tool = {"id": text(block.get("id")), "name": text(block.get("name")), "input": block.get("arguments")}
                yield f.MessageSaid(f.ASSISTANT, "", name, at, tool=tool)
            else:
                yield f.UnknownRecord(f"assistant/{kind or '?'}")
        turn = text(self.state.get("turn"))
        if turn and ending in _ENDS:
            yield f.TurnSettled(turn, _ENDS[ending], at, text(message.get("errorMessage"))[:300] or None)


_HANDLERS = {
    "session": Reader._header,
    "message": Reader._message,
    "compaction": Reader._compaction,
    "branch_summary": Reader._branch_summary,
    "custom_message": Reader._extension_message,
    "model_change": Reader._model,
    "session_info": Reader._title,
}


def _as_copies(found: Iterable[Fact]) -> Iterator[Fact]:
    """Marks messages as copies and drops what only the original counts."""
    for fact in found:
        if isinstance(fact, f.MessageSaid):
            yield fact._replace(mark=f.COPIED, turn="")
        elif not isinstance(fact, (f.TurnBegan, f.TurnSettled, f.MessagesRewound, f.Signal)):
            yield fact


def session_of(path: str) -> str:
    """The session in the name of its file: `<time>_<session>.jsonl`."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return name.partition("_")[2].removesuffix(".jsonl") if "_" in name else name.removesuffix(".jsonl")


def _key(data: Mapping[str, Any]) -> str:
    """The entry's id, or a hash: entries of the first version have no id."""
    message = table(data.get("message"))
    words = _flat(message.get("content"))
    return text(data.get("id")) or digest(
        text(data.get("timestamp")), text(message.get("role")), words, text(data.get("summary"))
    )


def _blocks(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{"type": "text", "text": entry} if isinstance(entry, str) else table(entry) for entry in items(content)]


def _flat(content: object) -> str:
    shown = (
        text(block.get("text")) if block.get("type") == "text" else f"[{text(block.get('type')) or 'something'}]"
        for block in _blocks(content)
    )
    return "\n".join(filter(None, shown))


def _result(message: Mapping[str, Any], key: str, at: str | None) -> f.MessageSaid:
    words = _flat(message.get("content"))
    tool: dict[str, Any] = {
        "id": text(message.get("toolCallId")),
        "name": text(message.get("toolName")),
        "error": message.get("isError") is True,
    }
    code = count(table(message.get("details")).get("exitCode"))
    if code is not None:
        tool["exit_code"] = code
    return f.MessageSaid(f.TOOL, words, key, at, tool=tool, mark=f.INJECTED if f.PACK in words else "")


def _tokens(value: object) -> Mapping[str, int] | None:
    number = count(value)
    return None if number is None else {"tokens": number}
