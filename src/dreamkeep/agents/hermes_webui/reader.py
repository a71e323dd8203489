"""Hermes WebUI: a session's document (and its backup), rewritten whole at every save, and two journals beside it.

    main, backup   pieces of {"session_id":…,"title":…,"workspace":…,…,"messages":[…],"tool_calls":[…],"context_messages":[…]}
    turns          {"version":1,"event":"submitted"|"worker_started"|"assistant_started"|"completed"|"interrupted","turn_id":…,…}
    run            {"version":…,"event_id":…,"seq":…,"run_id":…,"event":…,"payload":…}: what was streamed, kept raw only

Of a new version we get its frames, and the new elements. Messages have no id: a message is its role, content, time and tool ids.
`context_messages` is the model's copy and `tool_calls` a digest for the page: neither is a message. Then:
* `pending_user_message` is an open turn, before its prompt is among the messages; a later prompt with these words is the same
  turn. A turn is over when its answer, without tool calls, is there and nothing streams, or when another prompt follows.
* A compaction changes `compression_anchor_*`; its place is behind the message that the anchor names. A session that continues
  under a new id has the summary among its messages.
* `clear_generation` and `intentional_shrink_generation` change when the user cleared or took back messages. The
  `truncation_watermark`, the time of the last message that stayed, shows which.
* The backup is an earlier document: its messages count (they may be nowhere else), its turns and its state do not.
* Turn journals have turn ids and the prompt's words, but no message ids. Their keys are their own; the fold pairs them by the
  words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.pieces import DocumentPiece, piece
from dreamkeep.agents.shared.values import digest, from_json, items, parse_time, table, text

_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
_COUNTS = re.compile(r"(\d{1,9}) *(?:->|→) *(\d{1,9}) messages")
_UNTITLED = frozenset(("", "Untitled", "New Chat", "New chat"))
_MARKED = frozenset(("_partial", "_error", "_recovered"))
#: So many of the last messages are remembered with their times, to know where a rewind begins.
_MOST_MESSAGES = 64
#: Some times are whole seconds.
_GRAIN_S = 2
_EVENTS = frozenset(("submitted", "worker_started", "assistant_started", "completed", "interrupted"))


class Reader:
    """`state`: the array of the next element, what the last head said, the current turn, the last messages."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.channel == "piece":
            return self._piece(record.text, record.source == "main")
        if record.data is None:
            return ()  # no JSON object: whoever cut the file into lines has reported it
        if record.source == "run":
            return () if "run_id" in record.data or "event_id" in record.data else (f.UnknownRecord("run"),)
        return self._turn(record.data)

    # -- the document

    def _piece(self, words: str, main: bool) -> Iterator[Fact]:
        found = piece(words, bool(self.state.get("opened")))
        if found is None:
            if words.strip():
                yield f.OddRecord("piece", "a piece of a document that can't be read")
        elif isinstance(found, DocumentPiece):
            behind, self.state["opened"] = self.state.get("opened") == "messages", found.opens
            if main and behind:
                yield from self._messages_end()
            if main:
                yield from self._head(found.members, found.first)
            if main and not found.opens:
                yield from self._messages_end()
        elif self.state.get("opened") == "messages":
            yield from self._message(table(found.value), main)

    def _head(self, members: Mapping[str, Any], first: bool) -> Iterator[Fact]:
        """The members about the session, which stand before and after the arrays."""
        if (title := self._if_new("title", members.get("title"))) and title not in _UNTITLED:
            yield f.SessionTitled(title, 2 if members.get("manual_title") is True else 1)
        cwd = self._if_new("cwd", text(members.get("worktree_path")) or text(members.get("workspace")))
        model = self._if_new("model", members.get("model"))
        branch = self._if_new("branch", members.get("worktree_branch"))
        if cwd or model or branch:
            yield f.SessionPlaced(cwd=cwd, branch=branch, model=model)
        if parent := self._if_new("parent", members.get("parent_session_id")):
            fork = members.get("session_source") == "fork"
            yield f.Edge("fork" if fork else "continuation", parent, "parent_session_id")
        if members.get("pre_compression_snapshot") is True and self._if_new("frozen", "yes"):
            self.state["closing"] = parse_time(members.get("updated_at")) or ""
        if first or "compression_anchor_message_key" in members:
            yield from self._note_changes(members)
        if first or "pending_user_message" in members:
            prompt = text(members.get("pending_user_message")).strip()
            self.state["streams"] = bool(prompt or members.get("active_stream_id"))
            self.state["asked"] = [prompt, _seconds(members.get("pending_started_at"))]

    def _if_new(self, name: str, value: object) -> str:
        """The value, if it has changed."""
        words = text(value)
        if not words or self.state.get(name) == digest(words)[:12]:
            return ""
        self.state[name] = digest(words)[:12]
        return words

    # -- compactions, clears, rewinds

    def _note_changes(self, members: Mapping[str, Any]) -> Iterator[Fact]:
        seen, self.state["seen"] = bool(self.state.get("seen")), True
        at = parse_time(members.get("updated_at"))
        anchor = table(members.get("compression_anchor_message_key"))
        summary = text(members.get("compression_anchor_summary"))
        squeezed = self._if_new("anchor", digest(_to_json(anchor), summary) if anchor or summary else "")
        if squeezed:
            counts = _COUNTS.search(summary)
            self.state["waiting"] = {
                "id": squeezed,
                "at": at,
                "ts": _seconds(anchor.get("ts")),
                "reason": text(members.get("compression_anchor_mode"))[:40],
                "counts": [int(counts[1]), int(counts[2])] if counts else None,
            }
        cleared = self._if_new("cleared", members.get("clear_generation"))
        shrunk = self._if_new("shrunk", members.get("intentional_shrink_generation"))
        if not seen:
            return  # it was so from the beginning
        if cleared:
            yield f.Boundary("clear", at, cleared)
            self.state["tail"] = []
        elif shrunk and not squeezed:
            yield from self._rewind(_seconds(members.get("truncation_watermark")), at, shrunk)

    def _rewind(self, kept: float | None, at: str | None, generation: str) -> Iterator[Fact]:
        tail = self.state.get("tail", [])
        gone = next((n for n, (_, ts) in enumerate(tail) if kept is not None and ts is not None and ts > kept), None)
        if gone is not None:
            yield f.MessagesRewound(at, tail[gone][0])
            self.state["tail"] = tail[:gone]
            self.state.update(turn="", ending="")
        yield f.Boundary("rewind", at, generation)

    def _signal(self) -> Iterator[Fact]:
        waiting = self.state.pop("waiting", None)
        if waiting:
            counts = waiting["counts"]
            before, after = ({"messages": counts[0]}, {"messages": counts[1]}) if counts else (None, None)
            yield f.Signal(
                "transcript", "completed", waiting["at"], waiting["id"], reason=waiting["reason"], before=before, after=after
            )

    # -- turns

    def _pending(self) -> Iterator[Fact]:
        """After the messages: the pending prompt may be among them already, or come from an earlier version."""
        prompt, started = self.state.pop("asked", ("", None))
        turn = f"pending:{digest(prompt, repr(started))}"
        if not prompt or turn in (self.state.get("pended"), self.state.get("pending", {}).get("turn")):
            return
        last, said_at = self.state.get("last", ("", None))
        timed = said_at is not None and started is not None
        if last == digest(prompt) and not (_earlier(said_at, started) if timed else self.state.get("ending")):
            self.state["pended"] = turn
            return
        yield from self._settle()
        self.state["pending"] = {"turn": turn, "prompt": digest(prompt), "ts": started}
        self.state.update(turn=turn, ending="")
        yield f.TurnBegan(turn, prompt, parse_time(started))

    def _pending_turn(self, words: str, ts: float | None) -> str:
        """The turn of the pending prompt, if this is it."""
        pending = self.state.get("pending")
        if not pending or pending["prompt"] != digest(words.strip()):
            return ""
        if _earlier(ts, pending["ts"]):
            return ""  # an earlier message with the same words
        del self.state["pending"]
        self.state["pended"] = str(pending["turn"])
        return str(pending["turn"])

    def _messages_end(self) -> Iterator[Fact]:
        yield from self._signal()
        if not self.state.get("streams"):
            yield from self._settle()
        yield from self._pending()
        if "closing" in self.state:
            yield f.SessionClosed(self.state.pop("closing") or None, "compression")

    def _settle(self) -> Iterator[Fact]:
        turn, ending = self.state.get("turn"), self.state.get("ending")
        if turn and ending:
            yield f.TurnSettled(turn, *ending)
            self.state.update(turn="", ending="")

    # -- messages

    def _message(self, message: Mapping[str, Any], main: bool) -> Iterator[Fact]:
        role, ts = text(message.get("role")), _seconds(message.get("timestamp"))
        at = parse_time(message.get("timestamp"))
        words = _text(message.get("content"))
        calls = [table(entry) for entry in items(message.get("tool_calls"))]
        key = digest(role, _to_json(message.get("content")), repr(ts), text(message.get("tool_call_id")), *map(_call_id, calls))
        waiting = self.state.get("waiting") if main else None
        if waiting and waiting["ts"] is not None and ts is not None and ts > waiting["ts"]:
            yield from self._signal()
        if words.startswith(_SUMMARIES) or message.get("_squash_summary") is True:
            yield from self._summary(words, key, at, main)
        elif role == "user":
            words = words or ("[attachment]" if items(message.get("attachments")) else "")
            yield from self._user(words, key, at, ts, main) if words else ()
        elif role == "assistant":
            yield from self._assistant(message, words, calls, key, at, main)
        elif role == "tool":
            native = text(message.get("tool_call_id")) or key
            tool = {"id": native, "name": text(message.get("name")) or text(message.get("tool_name")), "error": _failed(words)}
            yield f.MessageSaid(f.TOOL, words, key, at, tool=tool)
        elif role == "system":
            yield f.MessageSaid(f.SYSTEM, words, key, at, mark=f.META)
        else:
            yield f.UnknownRecord(f"message/{role}"[:80])
        if main:
            self.state["tail"] = [*self.state.get("tail", ()), [key, ts]][-_MOST_MESSAGES:]

    def _user(self, words: str, key: str, at: str | None, ts: float | None, main: bool) -> Iterator[Fact]:
        if not main:
            yield f.MessageSaid(f.USER, words, key, at)
            return
        turn = self._pending_turn(words, ts)
        if not turn:
            yield from self._settle()
            turn = key
            yield f.TurnBegan(turn, words, at, key)
        self.state.update(turn=turn, ending="", last=[digest(words), ts])
        yield f.MessageSaid(f.USER, words, key, at, turn)

    def _summary(self, words: str, key: str, at: str | None, main: bool) -> Iterator[Fact]:
        if main and not self.state.get("anchor"):
            yield f.Signal("transcript", "completed", at, key)
        yield f.MessageSaid(f.SUMMARY, words, key, at)

    def _assistant(
        self, message: Mapping[str, Any], words: str, calls: list[Mapping[str, Any]], key: str, at: str | None, main: bool
    ) -> Iterator[Fact]:
        marked = {name for name in _MARKED if message.get(name)}
        mark = f.SYNTHETIC if "_error" in marked else f.PARTIAL if marked else ""
        if thinking := _text(message.get("reasoning") or message.get("reasoning_content")):
            yield f.MessageSaid(f.REASONING, thinking, f"{key}#thought", at, mark=mark)
        if words:
            yield f.MessageSaid(f.ASSISTANT, words, key, at, mark=mark)
        for n, entry in enumerate([*calls, *(table(entry) for entry in items(message.get("_partial_tool_calls")))]):
            yield f.MessageSaid(f.ASSISTANT, "", f"{key}#call{n}", at, tool=_call(entry, f"{key}#call{n}"), mark=mark)
        if main:
            self.state["ending"] = _ending(words, marked, bool(calls), at)

    # -- the turn journal

    def _turn(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        event, turn = text(data.get("event")), text(data.get("turn_id"))
        at = parse_time(data.get("created_at"))
        if event not in _EVENTS or not turn:
            yield f.UnknownRecord(f"turn/{event or 'none'}"[:80])
            return
        if event == "submitted":
            words = _text(data.get("content"))
            yield from self._place(data)
            yield f.TurnBegan(turn, words, at, f"turn:{turn}")
            yield f.MessageSaid(f.USER, words, f"turn:{turn}", at, turn)
        elif self.state.get("turn") != digest(turn)[:12]:
            yield f.TurnBegan(turn, "", at)  # its beginning is lost, or in another process's journal
        self.state["turn"] = digest(turn)[:12]
        if event in ("completed", "interrupted"):
            yield f.TurnSettled(turn, event, at, text(data.get("reason"))[:200] or None)

    def _place(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        cwd, model = self._if_new("cwd", data.get("workspace")), self._if_new("model", data.get("model"))
        if cwd or model:
            yield f.SessionPlaced(cwd=cwd, model=model)


def _ending(words: str, marked: set[str], calls: bool, at: str | None) -> list[Any] | str:
    """How the turn ended, if this is its last message: state, time, reason."""
    if "_error" in marked:
        cancelled = "cancelled" in words[:200].lower()
        return ["cancelled" if cancelled else "failed", at, words[:200] or None]
    if marked:
        return ["interrupted", at, "its answer is not whole"]
    return ["completed", at, None] if words and not calls else ""


def _call(entry: Mapping[str, Any], fallback: str) -> dict[str, Any]:
    """The form of OpenAI's interface, `{id, function: {name, arguments}}`, or a flat one."""
    function = table(entry.get("function")) or entry
    given = function.get("arguments", function.get("args", {}))
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            pass  # the text as the model wrote it
    return {"id": _call_id(entry) or fallback, "name": text(function.get("name")), "input": given}


def _call_id(entry: Mapping[str, Any]) -> str:
    return text(entry.get("id")) or text(entry.get("call_id")) or text(entry.get("tid"))


def _failed(words: str) -> bool:
    """Hermes' tools answer in JSON, with `error` or an exit code."""
    if not words.startswith("{"):
        return False
    given = table(from_json(words))
    return bool(given.get("error")) or given.get("success") is False or given.get("exit_code", 0) not in (0, None)


def _text(content: object) -> str:
    """A text, or parts `{"type":"text","text":…}`. Anything but text is named in brackets."""
    if not isinstance(content, list):
        return text(content).strip()
    words = []
    for part in content:
        kind = text(table(part).get("type"))
        if isinstance(part, str) or text(table(part).get("text")):
            words.append(part if isinstance(part, str) else text(part["text"]))
        elif kind:
            words.append("[image]" if "image" in kind else f"[{kind[:60]}]")
    return "\n".join(words).strip()


def _earlier(said_at: float | None, asked_at: float | None) -> bool:
    return said_at is not None and asked_at is not None and said_at + _GRAIN_S < asked_at


def _seconds(value: object) -> float | None:
    """A time as a number; None if it is no time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e15 else None


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return text(value)
