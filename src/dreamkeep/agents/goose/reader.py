"""Goose's `sessions.db`: rows of `sessions` and `messages`. From its source and from observation; we had no real file.

A compaction deletes all rows and inserts them again under new ids: the old ones with `agentVisible: false`; then, for the model
alone (`userVisible: false`), a summary and a note on how to go on; then, unless the user asked for the compaction, the last
prompt once more as a message of its own. So the key of a message is its `message_id` (older versions: a hash of it and its
time), never the row's id. A prompt right behind a compaction that repeats the last one is that one.

Nothing says that a turn is over. An answer without a request for a tool ends Goose's own loop, so it counts as the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import count, digest, from_json, items, parse_time, table, text

_NAMELESS = ("", "New session", "New Chat", "CLI Session")
_NOTES = ("The previous message", "context was compacted")
_HELD_BACK = 20_000  # characters of a message that waits for the next row
_MANUAL = ("at the user's request", "at your request", "requested by the user")
#: The client's own, between user and agent: kept raw.
_SILENT = frozenset(("toolConfirmationRequest", "actionRequired", "frontendToolRequest", "redactedThinking"))


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.data is None:
            return [f.OddRecord("row", "a row that is no object")]
        if record.name == "sessions":
            return list(_session(record.data))
        if record.name == "messages":
            return list(self._message(record.data))
        return [f.UnknownRecord(f"row/{record.name}")]

    def _message(self, row: Mapping[str, Any]) -> Iterator[Fact]:
        content = from_json(row.get("content_json"))
        if not isinstance(content, list):
            yield f.OddRecord("row", "a message whose content is no list")
            return
        blocks = [table(block) for block in content]
        seen = table(from_json(row.get("metadata_json")))
        shown, used = seen.get("userVisible") is not False, seen.get("agentVisible") is not False
        role, at = text(row.get("role")), parse_time(row.get("created_timestamp"))
        key = text(row.get("message_id")) or digest(role, row.get("content_json"), row.get("created_timestamp"))
        # The note's words change from version to version; a later compaction hides it from the model, too.
        note = not shown and role == "assistant" and any(words in _text_of(blocks) for words in _NOTES)
        yield from self._release_held(note, summary=not shown and role == "user")
        if note:
            yield from self._note(_text_of(blocks), key, at)
        elif role == "user" and not shown:
            yield from self._hidden_message(row, _text_of(blocks), key, at, used=used)
        elif role == "user":
            yield from self._user(row, blocks, key, at)
        elif role == "assistant":
            yield from self._assistant(row, blocks, key, at)
        else:
            yield f.UnknownRecord(f"messages/{role}")

    # -- compactions

    def _hidden_message(self, row: Mapping[str, Any], words: str, key: str, at: str | None, *, used: bool) -> Iterator[Fact]:
        """A message in the user's role that is not for the user: a summary; or, hidden from the model too, an old summary or the
        original of a doubled prompt. The next row shows which."""
        if key == self._turn():
            self.state["words"] = digest(words)
        elif not words:
            return
        elif used:
            self.state["summary"] = key
            yield f.MessageSaid(f.SUMMARY, words, f"{key}/{digest(words)}", at, self._turn())
        else:
            self.state["held"] = [key, at, words[:_HELD_BACK], self._is_new(row, key)]

    def _release_held(self, note: bool, *, summary: bool) -> Iterator[Fact]:
        held = self.state.pop("held", None)
        if not isinstance(held, list):
            return
        key, at, words, fresh = held
        if summary:
            said = f"{key}/{_hash({'type': 'text', 'text': words})}"
            self.state["words"] = digest(words)
            if fresh:
                yield from self._begin_turn(words, key, at, said)
            yield f.MessageSaid(f.USER, words, said, at, self._turn() if fresh else "")
            return
        if note:
            self.state["summary"] = key
        yield f.MessageSaid(f.SUMMARY, words, f"{key}/{digest(words)}", at, self._turn())

    def _note(self, words: str, key: str, at: str | None) -> Iterator[Fact]:
        """The note on how to go on, after the summary: now the compaction is done."""
        if summary := text(self.state.get("summary")):
            manual = any(sign in words for sign in _MANUAL)
            yield f.Signal("transcript", "completed", at, summary, reason="manual" if manual else "auto", turn=self._turn())
            if manual:
                self.state.pop("summary")  # no prompt is doubled then
        yield f.MessageSaid(f.ASSISTANT, words, f"{key}/{digest(words)}", at, mark=f.META)

    # -- what is said

    def _user(self, row: Mapping[str, Any], blocks: list[Mapping[str, Any]], key: str, at: str | None) -> Iterator[Fact]:
        words = _text_of(blocks)
        answers = any(text(block.get("type")) == "toolResponse" for block in blocks)
        fresh = self._is_new(row, key)
        if words and not answers:
            # Compare with the prompt before it in the file, not with the current turn: an old compaction's rows come again, too.
            doubled = self.state.pop("summary", None) and self.state.get("words") == digest(words)
            self.state["words"] = digest(words)
            if doubled:
                return
            if fresh:
                yield from self._begin_turn(words, key, at, f"{key}/{_hash(_first_text(blocks))}")
        yield from self._blocks(f.USER, blocks, key, at, self._turn() if fresh else "")
        self._note_time(row)

    def _begin_turn(self, words: str, key: str, at: str | None, said: str) -> Iterator[Fact]:
        self.state["prompt"] = key
        yield f.TurnBegan(key, words, at, said)

    def _assistant(self, row: Mapping[str, Any], blocks: list[Mapping[str, Any]], key: str, at: str | None) -> Iterator[Fact]:
        fresh = self._is_new(row, key)
        yield from self._blocks(f.ASSISTANT, blocks, key, at, self._turn() if fresh else "")
        asks = any("toolrequest" in text(block.get("type")).lower() for block in blocks)
        if fresh and self._turn() and _text_of(blocks) and not asks:
            yield f.TurnSettled(self._turn(), "completed", at)
        self._note_time(row)

    def _is_new(self, row: Mapping[str, Any], key: str) -> bool:
        """Whether it was not inserted again: a compaction gives old messages higher ids, but not later times."""
        at, last = count(row.get("created_timestamp")), self.state.get("latest")
        return key != self._turn() and (at is None or not isinstance(last, int) or at >= last)

    def _note_time(self, row: Mapping[str, Any]) -> None:
        at = count(row.get("created_timestamp"))
        if at is not None:
            self.state["latest"] = max(at, self.state.get("latest") or 0)

    def _turn(self) -> str:
        return text(self.state.get("prompt"))

    def _blocks(self, role: str, blocks: list[Mapping[str, Any]], key: str, at: str | None, turn: str) -> Iterator[Fact]:
        for block in blocks:
            kind = text(block.get("type"))
            name = f"{key}/{_hash(block)}"
            if kind == "text":
                if text(block.get("text")).strip():
                    yield f.MessageSaid(role, text(block.get("text")), name, at, turn)
            elif kind in ("thinking", "reasoning"):
                words = text(block.get("thinking")) or text(block.get("text")) or text(block.get("reasoning"))
                if words.strip():
                    yield f.MessageSaid(f.REASONING, words, name, at, turn)
            elif kind == "toolRequest":
                yield _request(block, name, at, turn)
            elif kind == "toolResponse":
                yield _response(block, name, at, turn)
            elif kind == "image":
                yield f.MessageSaid(role, "[image]", name, at, turn)
            elif kind in ("systemNotification", "contextLengthExceeded", "summarizationRequested"):
                yield f.MessageSaid(f.SYSTEM, text(block.get("msg")), name, at, turn, mark=f.META)
            elif kind not in _SILENT:
                yield f.UnknownRecord(f"content/{kind}")


def _session(row: Mapping[str, Any]) -> Iterator[Fact]:
    config = table(from_json(row.get("model_config_json")))
    yield f.SessionPlaced(text(row.get("working_dir")), "", text(config.get("model_name")))
    title = text(row.get("name")) or text(row.get("description"))
    if title.strip() not in _NAMELESS:
        yield f.SessionTitled(title.strip(), 2 if row.get("user_set_name") else 1)
    if parent := text(row.get("parent_session_id")):
        yield f.Edge("subagent", parent, "parent_session_id", parse_time(row.get("created_at")))


def _request(block: Mapping[str, Any], key: str, at: str | None, turn: str) -> Fact:
    call = table(block.get("toolCall"))
    value = table(call.get("value")) or call
    tool = {"id": text(block.get("id")), "name": text(value.get("name")), "input": value.get("arguments")}
    return f.MessageSaid(f.ASSISTANT, "", key, at, turn, tool)


def _response(block: Mapping[str, Any], key: str, at: str | None, turn: str) -> Fact:
    result = table(block.get("toolResult"))
    value = result.get("value")
    content = value if isinstance(value, list) else table(value).get("content")
    error = text(result.get("status")) == "error" or table(value).get("isError") is True
    words = "\n".join(_output(table(entry)) for entry in items(content)) or text(result.get("error"))
    return f.MessageSaid(f.TOOL, words, key, at, turn, {"id": text(block.get("id")), "error": error})


def _output(entry: Mapping[str, Any]) -> str:
    if text(entry.get("type")) == "image":
        return "[image]"
    return text(entry.get("text")) or text(table(entry.get("resource")).get("text"))


def _first_text(blocks: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((block for block in blocks if text(block.get("type")) == "text" and text(block.get("text")).strip()), {})


def _hash(block: Mapping[str, Any]) -> str:
    """Identifies a block in its message, without what a client may add to it later."""
    kind = text(block.get("type"))
    if kind in ("toolRequest", "toolResponse"):
        return f"{kind}/{text(block.get('id'))}"
    return digest(kind, text(block.get("text")), text(block.get("thinking")), text(block.get("msg")), text(block.get("data")))


def _text_of(blocks: list[Mapping[str, Any]]) -> str:
    return "\n".join(text(block.get("text")) for block in blocks if text(block.get("type")) == "text").strip()
