"""Gemini CLI: a transcript of patches, one JSON object a line.

    {"sessionId":…,"projectHash":…,"startTime":…,"kind":"main"|"subagent"}   header; again whenever a process opens this file anew
    {"id":…,"timestamp":…,"type":"user"|"gemini"|"info"|"warning"|"error","content":…,"toolCalls":[…],"thoughts":[…]}
    {"$set":{"lastUpdated":…}}  {"$set":{"sessionId":…}}  {"$set":{"summary":…}}   members of the header, changed
    {"$set":{"messages":[…]}}   the whole list anew: at a resume, a compaction, or when tool output was masked
    {"$rewindTo":id}            the user took back that message and all after it; an unknown id takes back everything

What the data showed:
* The same `id` again is a newer version. A gemini message is written when the model has answered, and again with its `toolCalls`
  when these have run; their results come once more as a user message of `functionResponse`s: one message here, by the call's id.
* A list on resume *drops the user's prompts* and doubles tool results under ids `<id>_response`; so neither what is missing in a
  list nor its length says much. What is older than the last record had a line of its own. From a list we only take the model's
  context, a summary, and new texts.
* A compaction's list begins with `<state_snapshot>…` and "Got it. Thanks for the additional context!", and repeats what it kept
  *under new ids*, all with the same new time: we recognise it by the words. Later lists repeat that summary under its id: that
  is no new compaction.
* No record says that a turn is over. An answer in words, without tool calls, shows it. If a process opened the session anew
  (`$set.sessionId`) before such an answer, the turn before was cut off.
* `$set.sessionId` also stands before a compaction within a turn; there the turn goes on.

A legacy session is one JSON document with the same members (`messages`, and the header's); it comes in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.pieces import DocumentPiece, piece
from dreamkeep.agents.shared.values import digest, items, parse_time, table, text

_CONTEXT = "<session_context>"
_SNAPSHOT = "<state_snapshot>"
ACKNOWLEDGED = "Got it. Thanks for the additional context!"
#: What the client itself says in the user's name to make the model go on.
_NUDGES = frozenset(("Please continue.", "System: Please continue."))
_LOOP = "System: Potential loop detected."
_CANCELLED = "Request cancelled."
_HEADER = frozenset(
    ("sessionId", "projectHash", "startTime", "lastUpdated", "kind", "messages", "summary", "directories", "memoryScratchpad")
)
_SILENT = _HEADER | {"activeExtensionName"}
_LONGEST_ID = 200
#: How many of the last texts are remembered, to recognise a compaction's copies of them; and as many of the copies' ids.
_REMEMBERED = 256
#: A list that has shrunk to a third of at least so many messages was squeezed, whatever its words.
_SQUEEZED_FROM = 9


# -- Gemini's `Content` form, also used by Qwen Code


def parts(content: object) -> list[Mapping[str, Any]]:
    """`content` may be a text, one part or a list of parts."""
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, Mapping):
        return [content]
    return [{"text": part} if isinstance(part, str) else part for part in items(content) if isinstance(part, (str, Mapping))]


def texts_of(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """The texts of parts. Anything but text is named in brackets."""
    words = []
    for part in found:
        if text(part.get("text")) and not part.get("thought"):
            words.append(text(part.get("text")))
        elif "inlineData" in part or "fileData" in part:
            kind = text((table(part.get("inlineData")) or table(part.get("fileData"))).get("mimeType"))
            words.append("[image]" if kind.startswith("image/") or not kind else f"[{kind[:60]}]")
    return words


def id_of(value: object) -> str:
    """An id as the client wrote it; the hash of one that is too long to be remembered."""
    native = text(value)
    return native if len(native) <= _LONGEST_ID else digest(native)


def cut_tags(words: str, tag: str) -> tuple[str, list[str]]:
    """The text without what stands between `<tag>` and `</tag>`, and a list of what stood there."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    kept, inner = [], []
    at = 0
    while (start := words.find(opening, at)) >= 0 and (end := words.find(closing, start)) >= 0:
        kept.append(words[at:start])
        inner.append(words[start + len(opening) : end].strip())
        at = end + len(closing)
    kept.append(words[at:])
    return "".join(kept).strip(), [entry for entry in inner if entry]


def call_message(part: Mapping[str, Any], fallback: str, at: str | None) -> f.MessageSaid:
    """A tool call, from `{id, name, args}`."""
    native = id_of(part.get("id")) or fallback
    return f.MessageSaid(
        f.ASSISTANT, "", native, at, tool={"id": native, "name": text(part.get("name")), "input": part.get("args", {})}
    )


def output_of(response: object) -> tuple[str, bool]:
    """A tool's result, and whether it is an error: `{"output": …}`, `{"error": …}` or anything."""
    given = table(response)
    for name in ("output", "error", "content", "result"):
        value = given.get(name)
        if isinstance(value, str):
            return value, name == "error"
        if value:
            return _to_json(value), name == "error"
    return ("", False) if not response or given == {"output": ""} else (_to_json(response), False)


def _to_json(value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return ""


class Reader:
    """`state`: the current turn, the length of the list by the client's own count, and the last texts by their hash."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.channel == "piece":
            return self._piece(record)
        if record.data is None:
            return ()  # no JSON object: whoever cut the file into lines has reported it
        return self._record(record.data)

    def _piece(self, record: Record) -> Iterator[Fact]:
        found = piece(record.text, bool(self.state.get("opened")))
        if found is None:
            if record.text.strip():
                yield f.OddRecord("piece", "a piece of a document that can't be read")
        elif isinstance(found, DocumentPiece):
            self.state["opened"] = found.opens
            yield from self._header(found.members)
        elif self.state.get("opened") == "messages":
            yield from self._message(table(found.value))

    def _record(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        if isinstance(data.get("$rewindTo"), str):
            self.state.update(turn="", settled=True, count=None)
            yield f.MessagesRewound(key=self._original_of(id_of(data["$rewindTo"])), all=True)
        elif isinstance(data.get("id"), str):
            yield from self._message(data)
        elif isinstance(data.get("$set"), Mapping):
            yield from self._change_header(data["$set"])
        elif isinstance(data.get("sessionId"), str):
            self.state.update(fresh=True, count=None, last="")
            yield from self._header(data)
        else:
            yield f.UnknownRecord(text(data.get("type")) or next((key for key in data if isinstance(key, str)), "empty"))

    # -- the header and its changes

    def _header(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        if title := text(data.get("summary")):
            yield f.SessionTitled(title)
        yield from self._place(next((entry for entry in items(data.get("directories")) if isinstance(entry, str)), ""))
        yield from (f.UnknownRecord(f"header.{key}") for key in data if key not in _SILENT)

    def _place(self, cwd: str = "", model: str = "") -> Iterator[Fact]:
        """Only what is new. The first folder is where the session began."""
        cwd = "" if self.state.get("cwd") else cwd
        model = "" if self.state.get("model") == model else model
        if cwd:
            self.state["cwd"] = True
        if model:
            self.state["model"] = model
        if cwd or model:
            yield f.SessionPlaced(cwd=cwd, model=model)

    def _change_header(self, changes: Mapping[str, Any]) -> Iterator[Fact]:
        if "sessionId" in changes:
            self.state["reopened"] = True
        if isinstance(changes.get("messages"), list):
            listed = [entry for entry in changes["messages"] if isinstance(entry, Mapping)]
            yield from self._new_list(listed, parse_time(changes.get("lastUpdated")))
        yield from self._header({key: value for key, value in changes.items() if key != "messages"})

    # -- the list anew

    def _new_list(self, listed: list[Mapping[str, Any]], at: str | None) -> Iterator[Fact]:
        before, self.state["count"] = self.state.get("count"), len(listed)
        summary = _summary(listed)
        native = id_of(listed[summary].get("id")) if summary is not None else ""
        if summary is not None and native != self.state.get("summary"):
            yield from self._compaction(listed[summary], native, before, len(listed))
        elif isinstance(before, int) and before >= _SQUEEZED_FROM and len(listed) * 3 <= before:
            squeezed = digest("squeezed", at or "", str(before), str(len(listed)))
            yield _signal(at, squeezed, before, len(listed))
        # The first list of a file: whatever is in it has no line of its own.
        tell = self._read_message if self.state.pop("fresh", False) else self._listed_message
        for n, message in enumerate(listed):
            if n != summary:
                yield from tell(message)
        for message in listed:
            self._note_time(message)

    def _compaction(self, message: Mapping[str, Any], native: str, before: object, after: int) -> Iterator[Fact]:
        self.state["summary"] = native
        at = parse_time(message.get("timestamp"))
        yield _signal(at, native, before, after)
        yield f.MessageSaid(f.SUMMARY, _text_of(message), native, at)

    def _listed_message(self, message: Mapping[str, Any]) -> Iterator[Fact]:
        """A message in a list. Only what had no line of its own counts."""
        native, at = id_of(message.get("id")), parse_time(message.get("timestamp"))
        role = {"user": f.USER, "gemini": f.ASSISTANT}.get(text(message.get("type")), "")
        words = _text_of(message)
        if words.startswith(_CONTEXT):
            yield from self._context(native, words, at)
            return
        if not native or not role or not words or (at or "") <= self.state.get("latest", ""):
            return
        if words == ACKNOWLEDGED:
            yield f.MessageSaid(f.ASSISTANT, words, native, at, mark=f.SYNTHETIC)
            return
        original = dict(self.state.get("texts", ())).get(_hash(role, words))
        if original:
            self._remember("copies", native, original)
        else:
            yield f.MessageSaid(role, words, native, at, mark=f.COMPACTED)

    # -- messages

    def _message(self, message: Mapping[str, Any]) -> Iterator[Fact]:
        """A message with a line (or piece) of its own."""
        native = id_of(message.get("id"))
        if native != self.state.get("last"):
            self.state["last"] = native
            if isinstance(count := self.state.get("count"), int):
                self.state["count"] = count + 1
            else:
                self.state["count"] = None if "count" in self.state else 1
        self.state.pop("fresh", None)
        self._note_time(message)
        yield from self._read_message(message)

    def _note_time(self, message: Mapping[str, Any]) -> None:
        self.state["latest"] = max(self.state.get("latest", ""), parse_time(message.get("timestamp")) or "")

    def _read_message(self, message: Mapping[str, Any]) -> Iterator[Fact]:
        kind = text(message.get("type"))
        native = self._original_of(id_of(message.get("id")) or digest(_to_json(message)))
        at = parse_time(message.get("timestamp"))
        if kind == "user":
            yield from self._user(message, native, at)
        elif kind == "gemini":
            yield from self._gemini(message, native, at)
        elif kind in ("info", "warning", "error"):
            yield from self._notice(message, kind, native, at)
        else:
            yield f.UnknownRecord(kind or "message")

    def _user(self, message: Mapping[str, Any], native: str, at: str | None) -> Iterator[Fact]:
        found = parts(message.get("content"))
        responses = [table(part.get("functionResponse")) for part in found if "functionResponse" in part]
        words = _text_of(message)
        if responses:
            self.state["reopened"] = False
            for n, response in enumerate(responses):
                yield _result(response, f"{native}#{n}", at)._replace(record=native)
            if words:
                yield f.MessageSaid(f.SYSTEM, words, native, at, mark=f.META)
        elif words.startswith(_CONTEXT):
            yield from self._context(native, words, at)
        elif self._is_nudge(message, words):
            yield f.MessageSaid(f.SYSTEM, words, native, at, mark=f.META)
        elif words:
            yield from self._prompt(message, words, native, at)

    def _is_nudge(self, message: Mapping[str, Any], words: str) -> bool:
        """Whether these are the client's own words: it displays the turn's prompt for them. If the user types them, it
        displays them."""
        shown = _displayed_text(message)
        if words not in _NUDGES and not words.startswith(_LOOP):
            return False
        return not shown or (shown != words and _hash(f.USER, shown) == self.state.get("shown"))

    def _prompt(self, message: Mapping[str, Any], words: str, native: str, at: str | None) -> Iterator[Fact]:
        self._remember("texts", _hash(f.USER, words), native)
        if self.state.get("turn") not in (None, "", native) and not self.state.get("settled") and self.state.get("reopened"):
            yield f.TurnSettled(self.state["turn"], "interrupted", at, "the session was opened anew before it was answered")
        self.state.update(turn=native, settled=False, reopened=False)
        prompt, hooks = cut_tags(words, "hook_context")
        prompt = _displayed_text(message) or prompt
        self.state["shown"] = _hash(f.USER, prompt)
        if prompt:
            yield f.TurnBegan(native, prompt, at, native)
            yield f.MessageSaid(f.USER, prompt, native, at, native)
        for n, context in enumerate(hooks):
            yield f.MessageSaid(f.SYSTEM, context, f"{native}#hook{n}", at, native, mark=f.HOOK)

    def _context(self, native: str, words: str, at: str | None) -> Iterator[Fact]:
        yield f.MessageSaid(f.SYSTEM, words, native, at, mark=f.META)
        yield from self._place(_workspace(words))

    def _gemini(self, message: Mapping[str, Any], native: str, at: str | None) -> Iterator[Fact]:
        yield from self._place(model=id_of(message.get("model")))
        for n, thought in enumerate(items(message.get("thoughts"))):
            entry = table(thought)
            lines = (text(entry.get("subject")), text(entry.get("description")))
            if thinking := "\n".join(line for line in lines if line):
                yield f.MessageSaid(
                    f.REASONING, thinking, f"{native}#thought{n}", parse_time(entry.get("timestamp")) or at, record=native
                )
        if words := _text_of(message):
            self._remember("texts", _hash(f.ASSISTANT, words), native)
            yield f.MessageSaid(f.ASSISTANT, words, native, at, mark=f.SYNTHETIC if words == ACKNOWLEDGED else "")
        calls = [table(entry) for entry in items(message.get("toolCalls"))]
        # These have ids of their own, but a rewind names their message.
        yield from (words._replace(record=native) for words in _calls(calls, native, at))
        self.state["reopened"] = False
        yield from self._settle(words, calls, at)

    def _settle(self, words: str, calls: list[Mapping[str, Any]], at: str | None) -> Iterator[Fact]:
        turn = self.state.get("turn")
        if not turn or words == ACKNOWLEDGED:
            return
        before = self.state.get("settled")
        cancelled = bool(calls) and all(entry.get("status") == "cancelled" for entry in calls)
        self.state["settled"] = cancelled or (bool(words) and not calls)
        if before and (cancelled or not self.state["settled"]):
            yield f.TurnSettled(turn, "started", at)  # these words were not the last: the turn goes on
        if self.state["settled"]:
            yield f.TurnSettled(turn, "cancelled" if cancelled else "completed", at)

    def _notice(self, message: Mapping[str, Any], kind: str, native: str, at: str | None) -> Iterator[Fact]:
        words = _text_of(message)
        if words:
            yield f.MessageSaid(f.SYSTEM, words, native, at, mark=f.META)
        turn = self.state.get("turn")
        if turn and (kind == "error" or words == _CANCELLED):
            if words == _CANCELLED and self.state.get("settled"):
                yield f.TurnSettled(turn, "started", at)  # what it said before was not the whole answer
            self.state["settled"] = True
            yield f.TurnSettled(turn, "failed" if kind == "error" else "cancelled", at, words[:200] or None)

    # -- what is remembered

    def _original_of(self, native: str) -> str:
        """The message that this id is a copy of, or itself."""
        return str(dict(self.state.get("copies", ())).get(native, native))

    def _remember(self, what: str, name: str, key: str) -> None:
        kept = [pair for pair in self.state.get(what, ()) if pair[0] != name]
        self.state[what] = [*kept, [name, key]][-_REMEMBERED:]


def _text_of(message: Mapping[str, Any]) -> str:
    """A user's parts are separate paragraphs; a model's are stretches of one answer."""
    return ("" if message.get("type") == "gemini" else "\n").join(texts_of(parts(message.get("content")))).strip()


def _displayed_text(message: Mapping[str, Any]) -> str:
    """What the client shows as the user's words, where that differs from what it sends."""
    return cut_tags("\n".join(texts_of(parts(message.get("displayContent")))), "hook_context")[0]


def _hash(role: str, words: str) -> str:
    return digest(role, words)[:12]


def _summary(listed: list[Mapping[str, Any]]) -> int | None:
    """The place of a compaction's summary in a list: by its tag, or by the client's own answer to it."""
    for n, message in enumerate(listed):
        if message.get("type") != "user" or not text(message.get("id")):
            continue
        if _text_of(message).startswith(_SNAPSHOT):
            return n
        answer = listed[n + 1] if n + 1 < len(listed) else {}
        if answer.get("type") == "gemini" and _text_of(answer) == ACKNOWLEDGED:
            return n
    return None


def _signal(at: str | None, native: str, before: object, after: int) -> f.Signal:
    counted = {"messages": before} if isinstance(before, int) else None
    return f.Signal("transcript", "completed", at, native, before=counted, after={"messages": after})


def _calls(calls: list[Mapping[str, Any]], native: str, at: str | None) -> Iterator[f.MessageSaid]:
    for n, entry in enumerate(calls):
        when_run = parse_time(entry.get("timestamp")) or at
        fallback = f"{native}#call{n}"
        yield call_message(entry, fallback, at)
        name, status = text(entry.get("name")), text(entry.get("status"))
        key = id_of(entry.get("id")) or fallback
        found = [table(part.get("functionResponse")) for part in parts(entry.get("result")) if "functionResponse" in part]
        if found:
            words, error = output_of(found[0].get("response"))
        elif entry.get("result") or status in ("error", "cancelled"):
            words, error = "\n".join(texts_of(parts(entry.get("result")))) or text(entry.get("resultDisplay")), False
        else:
            continue  # it has not run yet
        tool = {"id": key, "name": name, "error": error or status in ("error", "cancelled")}
        yield f.MessageSaid(f.TOOL, words, f"{key}#result", when_run, tool=tool)


def _result(response: Mapping[str, Any], fallback: str, at: str | None) -> f.MessageSaid:
    native = id_of(response.get("id")) or fallback
    words, error = output_of(response.get("response"))
    return f.MessageSaid(
        f.TOOL, words, f"{native}#result", at, tool={"id": native, "name": text(response.get("name")), "error": error}
    )


def _workspace(context: str) -> str:
    """The first folder that the client names to the model: a path alone on its line, after a dash, or at the end of a
    sentence."""
    for line in context.splitlines():
        bare = line.strip().removeprefix("- ")
        if not line.startswith((" ", "-")) and "working in the directory:" in line:
            bare = line.partition("working in the directory:")[2].strip()
        elif not line.startswith("  - "):
            continue
        if bare.startswith("/"):
            return bare
    return ""
