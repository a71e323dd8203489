"""Codex CLI's rollouts → facts. Each line is `{timestamp, ordinal?, type, payload, metadata?}`.

Observed (0.166, `paginated`): session_meta, turn_context, world_state, response_item/*, event_msg/*, token_usage_record,
compacted. From its sources: `legacy` files (no ordinals, user_message / agent_message instead of item_completed), forks,
subagents, encrypted compactions, rollbacks, and the bare lines without payload of its first versions.

* Text stands twice: as response_item (what the model sees) and as event_msg (what the user sees). The first one counts, its
  twin is dropped (`twins.py`); so files that have only one of the two lose nothing. A tool's result is shown as soon as either
  is there; both have the key of the call.
* What the client says in the user's or developer's name (environment, skills, hooks) is marked: newer files name the kind of
  each piece of content, in older ones it is known by how it begins.
* A turn begins with its prompt, which comes after task_started. A turn that never gets a prompt (a manual compaction) is none.
* One compaction = one `compacted` + one ContextCompaction (legacy: context_compacted), in the same turn: one identity.
  `replacement_history` is a copy, of which nothing is read but the summary when it stands nowhere else.
* A fork's or subagent's file begins with its parent's records: below `subagent_history_start_ordinal`, or (legacy forks, whose
  copies get new times) until a turn whose id (UUIDv7: a time) is not older than the thread's own.
* A turn cut by a crash is followed by the next one, and nothing says how it ended: it stays unsettled. Files from before
  task_started and task_complete say it of no turn: there an answer in words, as the last thing before the next prompt, says that
  the turn was completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.codex.items import (
    call_id,
    is_meta,
    is_prompt,
    lineage,
    marked,
    message_of,
    moment,
    result_in,
    seconds,
    summary_in,
    tool_name,
    turn_named,
    words_in,
)
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.prompts import prompted, taken_back
from dreamkeep.agents.shared.twins import fresh, remember
from dreamkeep.agents.shared.values import arguments, count, digest, items, parse_time, table, text

_PAUSE_S = 5

#: Known, and nothing in them for us.
_SILENT = re.compile(
    r"""world_state|token_usage_record|security_risk_score|inter_agent_communication_metadata
    |additional_tools|compaction_trigger|ghost_snapshot|other
    |thread_settings_applied|item_(started|updated)|patch_apply_(begin|updated)|exec_command_(begin|output_delta)
    |mcp_tool_call_begin|web_search_(begin|end)|image_generation_(begin|end)|view_image_tool_call|(entered|exited)_review_mode
    |thread_goal_updated|sub_agent_activity|collab_\w+|plan_(update|delta)|turn_diff|(guardian_)?warning|deprecation_notice
    |stream_error|background_event|agent_reasoning_section_break|\w+_delta|session_configured|mcp_startup_(update|complete)
    |hook_(started|completed)|shutdown_complete|model_reroute
    |ImageView|ImageGeneration|Sleep|CollabAgentToolCall|SubAgentActivity|(Entered|Exited)ReviewMode""",
    re.VERBOSE,
).fullmatch
_BARE = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call", "custom_tool_call")


class CodexLine(NamedTuple):
    kind: str
    payload: Mapping[str, Any]
    at: str | None
    ordinal: int | None
    metadata: Mapping[str, Any]


def _line(data: Mapping[str, Any]) -> CodexLine:
    at, kind = parse_time(data.get("timestamp")), text(data.get("type"))
    if isinstance(data.get("payload"), Mapping) or kind not in ("", *_BARE):
        return CodexLine(kind, table(data.get("payload")), at, count(data.get("ordinal")), table(data.get("metadata")))
    if kind:
        return CodexLine("response_item", data, at, None, {})
    head = text(data.get("id")) and at
    return CodexLine("session_meta" if head else "world_state" if data.get("record_type") else "", data, at, None, {})


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.data is None:
            return []  # told already, by who found that it is no JSON
        if record.source == "names":
            name = text(record.data.get("thread_name"))
            return [f.SessionTitled(name, 2)] if name else []
        line = _line(record.data)
        found: list[Fact] = [*self._counted(line)]
        if "copy" in self.state and line.kind != "session_meta":
            if self._is_copy(line):
                return [*found, *self._as_copies(self._facts(line))]
            found += self._copied(line)
        return [*found, *self._facts(line)]

    def _facts(self, line: CodexLine) -> Iterable[Fact]:
        act = self._RECORDS.get(line.kind)
        if act:
            return act(self, line)
        return [] if _SILENT(line.kind) else [f.UnknownRecord(line.kind or "?")]

    def _counted(self, line: CodexLine) -> Iterable[Fact]:
        expected, ordinal = self.state.get("next"), line.ordinal
        if ordinal is None:
            first = expected is not None and not self.state.get("uncounted")
            self.state["uncounted"] = True
            return [f.OddRecord("ordinal", "a record without an ordinal among those that have one")] if first else []
        self.state["next"] = ordinal + 1
        self.state.pop("uncounted", None)
        if expected is None or ordinal in (expected, 0 if line.kind == "session_meta" else expected):
            return []
        if ordinal < expected:
            return [f.OddRecord("ordinal", f"ordinal {ordinal} is used again where {expected} was due")]
        return [f.OddRecord("ordinal", f"ordinals {expected} to {ordinal - 1} are missing")]

    # -- what was copied from a parent

    def _meta(self, line: CodexLine) -> Iterable[Fact]:
        payload = line.payload
        own = text(payload.get("id")) or text(payload.get("session_id"))
        known = self.state.get("id")
        if known is not None and own != known:
            # The parent's head, copied: only the first one is this file's own.
            if "edge" in self.state and "copy" not in self.state:
                self.state["copy"] = {"born": known, "at": self.state.get("born_at")}
            return []
        git = table(payload.get("git"))
        placed = f.SessionPlaced(
            text(payload.get("cwd")),
            text(git.get("branch")),
            "",
            text(payload.get("cli_version")),
            text(git.get("repository_url")),
        )
        if known is not None:
            return [placed]
        self.state["id"] = own
        self.state["born_at"] = parse_time(payload.get("timestamp")) or line.at
        edge = lineage(payload, own, line.at)
        if edge is None:
            return [placed]
        self.state["edge"] = [edge.kind, edge.session, edge.evidence]
        start = count(payload.get("subagent_history_start_ordinal"))
        if start is not None:
            self.state["copy"] = {"until": start, "born": own, "at": self.state["born_at"]}
        elif edge.kind == "fork" and not payload.get("history_base"):
            self.state["copy"] = {"born": own, "at": self.state["born_at"]}
        return [placed, edge]

    def _is_copy(self, line: CodexLine) -> bool:
        copy = self.state["copy"]
        until = copy.get("until")
        if until is not None and line.ordinal is not None:
            return line.ordinal < int(until)
        turn, born = moment(turn_named(line.payload)), moment(copy["born"])
        if turn and born:
            return turn < born
        began, at = parse_time(line.payload.get("started_at")), copy.get("at")
        if began and at:
            return began[:19] < str(at)[:19]
        # Copies are written in one go. Where no id tells, a prompt after a pause is the first that was typed here.
        typed = text(line.payload.get("type")) in ("task_started", "turn_started", "user_message") or is_prompt(line.payload)
        return not (typed and seconds(copy.get("last"), line.at) > _PAUSE_S)

    def _as_copies(self, found: Iterable[Fact]) -> Iterable[Fact]:
        copy = self.state["copy"]
        for fact in found:
            if isinstance(fact, f.MessageSaid):
                copy["through"] = fact.key
                copy["last"] = fact.at
                yield fact._replace(mark=f.COPIED)
            elif isinstance(fact, f.Signal):
                yield fact._replace(historic=True)
            elif isinstance(fact, f.UnknownRecord | f.OddRecord):
                yield fact

    def _copied(self, line: CodexLine) -> Iterable[Fact]:
        """The copies end here."""
        copy = self.state.pop("copy")
        for key in ("turn", "twins", "last", "compaction"):
            self.state.pop(key, None)
        kind, session, evidence = self.state["edge"]
        return [f.Edge(kind, session, evidence, line.at, copy["through"])] if copy.get("through") else []

    # -- turns

    def _turn(self, payload: Mapping[str, Any]) -> str:
        return turn_named(payload) or str(self.state.get("turn", {}).get("id", ""))

    def _started(self, line: CodexLine) -> Iterable[Fact]:
        turn = turn_named(line.payload)
        self.state["tasks"] = True
        if turn != self.state.get("turn", {}).get("id"):
            self.state["turn"] = {"id": turn}
            self.state.pop("twins", None)
        return []

    def _prompt(self, line: CodexLine, prompt: str, key: str) -> tuple[str, list[Fact]]:
        """The turn that a user's message belongs to, and its beginning, if it is the first in it."""
        named, now = turn_named(line.payload), self.state.get("turn", {})
        current = "" if now.get("made") or now.get("done") else str(now.get("id", ""))
        turn = named or current or key
        if now.get("id") == turn and now.get("prompt"):
            return turn, []  # said while the turn was going on
        same = now if now.get("id") == turn else {}
        over = [] if same else self._answered()
        self.state["turn"] = {**same, "id": turn, "prompt": True, "made": not (named or current)}
        prompted(self.state, key)
        return turn, [*over, f.TurnBegan(turn, prompt, line.at, key)]

    def _answered(self) -> list[Fact]:
        """The turn before, in a file that has no word for how a turn ends: was an answer in words the last thing in it?"""
        now = self.state.get("turn", {})
        if not now.get("made") or now.get("done") or not now.get("answered") or self.state.get("tasks"):
            return []
        return [f.TurnSettled(now["id"], "completed", now["answered"])]

    def _note_answer(self, at: str | None) -> None:
        if self.state.get("turn", {}).get("made"):
            self.state["turn"] = {**self.state["turn"], "answered": at}

    def _complete(self, line: CodexLine) -> Iterable[Fact]:
        turn, now = self._turn(line.payload), self.state.get("turn", {})
        self.state["tasks"] = True
        error = message_of(line.payload.get("error")) or now.get("error", "")
        failed = error and not line.payload.get("last_agent_message")
        found = self._settle(line, "failed" if failed else "completed", error or None)
        squeezed = self.state.get("compaction", {})
        if turn and squeezed.get("turn") == turn and not now.get("prompt"):
            # Nobody asked for anything else in this turn: the compaction was what was asked for.
            found.append(f.Signal("transcript", "completed", line.at, squeezed["id"], reason="manual", turn=turn))
        return found

    def _aborted(self, line: CodexLine) -> Iterable[Fact]:
        reason = text(line.payload.get("reason"))
        state = {"interrupted": "cancelled", "replaced": "cancelled", "review_ended": "cancelled", "budget_limited": "failed"}
        return self._settle(line, state.get(reason, "interrupted"), reason or None)

    def _settle(self, line: CodexLine, state: str, reason: str | None) -> list[Fact]:
        turn = self._turn(line.payload)
        now = self.state.get("turn", {})
        if now.get("id") == turn:
            self.state["turn"] = {**now, "done": True}
        return [f.TurnSettled(turn, state, line.at, reason)]

    def _failed(self, line: CodexLine) -> Iterable[Fact]:
        """An error; whether the turn ends by it is told by how it completes."""
        self.state.setdefault("turn", {"id": ""})["error"] = text(line.payload.get("message"))[:500] or "error"
        return []

    def _rolled_back(self, line: CodexLine) -> Iterable[Fact]:
        return taken_back(self.state, count(line.payload.get("num_turns")) or 0, line.at)

    def _context(self, line: CodexLine) -> Iterable[Fact]:
        return [f.SessionPlaced(text(line.payload.get("cwd")), "", text(line.payload.get("model")))]

    def _renamed(self, line: CodexLine) -> Iterable[Fact]:
        title = text(line.payload.get("thread_name")) or text(line.payload.get("name"))
        return [f.SessionTitled(title, 2)] if title else []

    # -- compactions

    def _compacted(self, line: CodexLine) -> Iterable[Fact]:
        window = line.payload.get("window_id")
        message = summary_in(line.payload)
        own = window if isinstance(window, str) and window else digest(self._turn(line.payload), window, message or line.at)
        before = self.state.pop("full", None) or self.state.get("tokens")
        self.state.pop("tokens", None)
        return [
            *self._squeezed(line, "record", own, before={"tokens": before} if before else None),
            *self._summary(line, message),
        ]

    def _compaction_shown(self, line: CodexLine) -> Iterable[Fact]:
        own = text(table(line.payload.get("item")).get("id")) or digest(self._turn(line.payload), line.at)
        after = self.state.get("tokens")
        return self._squeezed(line, "event", own, after={"tokens": after} if after else None)

    def _encrypted(self, line: CodexLine) -> Iterable[Fact]:
        sealed = text(line.payload.get("encrypted_content"))
        return self._squeezed(line, "sealed", text(line.payload.get("id")) or digest(sealed or line.at))

    def _squeezed(
        self, line: CodexLine, by: str, own: str, before: Mapping[str, int] | None = None, after: Mapping[str, int] | None = None
    ) -> Iterable[Fact]:
        """Records of different kinds in one turn tell of one compaction; a second one of the same kind is another one."""
        turn, now = self._turn(line.payload), self.state.get("compaction", {})
        by_now = now.get("by", {})
        if not now or now["turn"] != turn or by_now.get(by, own) != own:
            now, by_now = {"id": own, "turn": turn}, {}
        elif by in by_now:
            return []  # the very same record again
        self.state["compaction"] = {**now, "by": {**by_now, by: own}}
        asked = self.state.get("turn", {})
        reason = "auto" if asked.get("prompt") and not asked.get("done") else ""
        return [f.Signal("transcript", "completed", line.at, now["id"], reason=reason, before=before, after=after, turn=turn)]

    def _summary(self, line: CodexLine, message: str) -> Iterable[Fact]:
        if not message.strip():
            return []
        key, known = self.state.get("summary", ("", ""))
        if known != digest(message):
            key = self._answer_in(message) or digest(f.SUMMARY, message)
            self.state["summary"] = [key, digest(message)]
        return [f.MessageSaid(f.SUMMARY, message, key, line.at, self._turn(line.payload))]

    def _answer_in(self, message: str) -> str:
        """The model's last answer was this summary, and stands at its end: then it is the same message."""
        key, size, words = self.state.get("last", ("", 0, ""))
        return str(key) if size and digest(message[-size:]) == words else ""

    # -- messages

    def _message(self, line: CodexLine) -> Iterable[Fact]:
        payload, role = line.payload, text(line.payload.get("role"))
        if role == "assistant":
            return self._answer(line, "response", text(payload.get("id")), words_in(payload.get("content")))
        found: list[Fact] = []
        for n, (mark, words) in enumerate(marked(payload, role)):
            key = text(payload.get("id")) or digest(role, words, line.at)
            key = f"{key}#{n}" if n else key
            if mark == f.COMPACTED:
                found += self._summary(line, words)
            elif mark or role != "user":
                found.append(
                    f.MessageSaid(
                        f.USER if role == "user" else f.SYSTEM, words, key, line.at, self._turn(payload), mark=mark or f.META
                    )
                )
            else:
                found += self._asked(line, "response", key, words)
        return found

    def _asked(self, line: CodexLine, source: str, key: str, words: str) -> Iterable[Fact]:
        if not words.strip() or not fresh(self.state, source, f.USER, words.replace("[image]", "")):
            return []
        turn, found = self._prompt(line, words, key)
        return [*found, f.MessageSaid(f.USER, words, key, line.at, turn)]

    def _answer(self, line: CodexLine, source: str, key: str, words: str) -> Iterable[Fact]:
        role = f.SUMMARY if line.metadata.get("compaction_output") else f.ASSISTANT
        if not words.strip() or not fresh(self.state, source, f.ASSISTANT, words):
            return []
        key = key or digest(role, words, line.at)
        self.state["last"] = [key, len(words), digest(words)]
        if role == f.SUMMARY and "tokens" in self.state:
            self.state["full"] = self.state["tokens"]
        self._note_answer(line.at if role == f.ASSISTANT else None)
        return [f.MessageSaid(role, words, key, line.at, self._turn(line.payload))]

    def _thought(self, line: CodexLine, source: str, key: str, parts: list[str]) -> Iterable[Fact]:
        new = [part for part in parts if part.strip() and fresh(self.state, source, f.REASONING, part)]
        if not new:
            return []
        key = key or digest(f.REASONING, *new, line.at)
        key = key if len(new) == len(parts) else f"{key}#rest"
        return [f.MessageSaid(f.REASONING, "\n\n".join(new), key, line.at, self._turn(line.payload))]

    def _reasoning(self, line: CodexLine) -> Iterable[Fact]:
        parts = [*items(line.payload.get("summary")), *items(line.payload.get("content"))]
        return self._thought(line, "response", text(line.payload.get("id")), [text(table(part).get("text")) for part in parts])

    def _between(self, line: CodexLine) -> Iterable[Fact]:
        """What one agent says to another; its form is known from sources only."""
        payload = line.payload
        words = words_in(payload.get("content")) or text(payload.get("message")) or text(payload.get("text"))
        key = text(payload.get("id")) or digest("between", words, line.at)
        return [f.MessageSaid(f.SYSTEM, words, key, line.at, self._turn(payload), mark=f.META)] if words.strip() else []

    # -- tools

    def _call(self, line: CodexLine) -> Iterable[Fact]:
        payload = line.payload
        known = {"local_shell_call": "local_shell", "web_search_call": "web_search", "tool_search_call": "tool_search"}
        name = tool_name(payload.get("namespace"), payload.get("name")) or known.get(
            text(payload.get("type")), "image_generation"
        )
        asked = next(
            (payload[key] for key in ("arguments", "input", "action", "revised_prompt") if payload.get(key) is not None), None
        )
        call = text(payload.get("call_id")) or text(payload.get("id")) or digest(name, asked, line.at)
        return [self._called(line, call, name, asked)]

    def _called(self, line: CodexLine, call: str, name: str, asked: object) -> Fact:
        self._note(call, name=name)
        self._note_answer(None)
        tool = {"id": call, "name": name, "input": arguments(asked)}
        return f.MessageSaid(f.ASSISTANT, "", f"call:{call}", line.at, self._turn(line.payload), tool)

    def _output(self, line: CodexLine) -> Iterable[Fact]:
        call = text(line.payload.get("call_id")) or text(line.payload.get("id"))
        if not call:
            return [f.OddRecord("tool", "a tool's result that says of no call")]
        output = line.payload.get("output")
        words, code, succeeded = result_in(output if output is not None else line.payload.get("tools"))
        if code is not None:
            self._note(call, exit_code=code, error=code != 0)
        if succeeded is not None:
            self._note(call, error=not succeeded)
        return [self._result(line, call, words)]

    def _ran(self, line: CodexLine, done: Mapping[str, Any], call: str, name: str, asked: object, words: str) -> Iterable[Fact]:
        """A call and its end in one: as the user saw it."""
        found: list[Fact] = [] if call in self.state.get("calls", {}) else [self._called(line, call, name, asked)]
        code = done.get("exit_code")
        if isinstance(code, int) and not isinstance(code, bool):
            self._note(call, exit_code=code, error=code != 0)
        elif done.get("status") in ("failed", "declined") or done.get("success") is False or done.get("error"):
            self._note(call, error=True)
        elif done.get("status") == "completed" or done.get("success") is True:
            self._note(call, error=False)
        return [*found, self._result(line, call, words)]

    def _result(self, line: CodexLine, call: str, words: str) -> Fact:
        self._note_answer(None)
        tool = {"id": call, **self.state.get("calls", {}).get(call, {})}
        return f.MessageSaid(f.TOOL, words, f"result:{call}", line.at, self._turn(line.payload), tool)

    def _note(self, call: str, **known: Any) -> None:
        remember(self.state, "calls", call, {**self.state.get("calls", {}).get(call, {}), **known})

    def _command(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        words = text(done.get("aggregated_output")) or text(done.get("formatted_output"))
        words = words or text(done.get("stdout")) + text(done.get("stderr"))
        return self._ran(line, done, call_id(done), "shell", {"command": done.get("command")}, words)

    def _mcp(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        asked = table(done.get("invocation")) or done
        result = table(done.get("result"))
        given = table(result.get("Ok")) or result
        problem = message_of(done.get("error")) or message_of(result.get("Err"))
        status = {"error": True} if problem or given.get("isError") or given.get("is_error") else {"status": "completed"}
        name = tool_name(f"mcp__{text(asked.get('server'))}", asked.get("tool"))
        return self._ran(line, status, call_id(done), name, asked.get("arguments"), words_in(given.get("content")) or problem)

    def _dynamic(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        name = tool_name(done.get("namespace"), done.get("tool"))
        words = words_in(done.get("content_items")) or message_of(done.get("error"))
        return self._ran(line, done, call_id(done), name, done.get("arguments"), words)

    def _patched(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        words = text(done.get("stdout")) + text(done.get("stderr"))
        return self._ran(line, done, call_id(done), "apply_patch", {"changes": done.get("changes")}, words)

    def _searched(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        call = call_id(done)
        known = call in self.state.get("calls", {})
        return [] if known else [self._called(line, call, "web_search", done.get("action") or {"query": done.get("query")})]

    # -- event_msg and response_item

    def _event(self, line: CodexLine) -> Iterable[Fact]:
        kind = text(line.payload.get("type"))
        if kind in self._ENDS:
            return self._ENDS[kind](self, line, line.payload) if call_id(line.payload) else []
        act = self._EVENTS.get(kind)
        if act:
            return act(self, line)
        return [] if _SILENT(kind) else [f.UnknownRecord(f"event_msg/{kind}")]

    def _shown(self, line: CodexLine) -> Iterable[Fact]:
        done = table(line.payload.get("item"))
        kind = text(done.get("type"))
        if kind in self._ENDS:
            return self._ENDS[kind](self, line, done) if call_id(done) else []
        key = text(done.get("id"))
        if kind == "UserMessage":
            words = words_in(done.get("content"))
            return self._asked(line, "event", key or digest(f.USER, words, line.at), words)
        if kind == "AgentMessage":
            return self._answer(line, "event", key, words_in(done.get("content")))
        if kind == "Reasoning":
            parts = [*items(done.get("summary_text")), *items(done.get("raw_content"))]
            return self._thought(line, "event", key, [text(part) for part in parts])
        if kind == "Plan":
            return self._answer(line, "event", key, text(done.get("text")))
        if kind == "HookPrompt":
            words = "\n".join(text(table(part).get("text")) for part in items(done.get("fragments")))
            mark = f.INJECTED if f.PACK in words else f.HOOK
            return [
                f.MessageSaid(f.USER, words, key or digest("hook", words, line.at), line.at, self._turn(line.payload), mark=mark)
            ]
        if kind == "ContextCompaction":
            return self._compaction_shown(line)
        return [] if _SILENT(kind) else [f.UnknownRecord(f"item_completed/{kind}")]

    def _said_by_user(self, line: CodexLine) -> Iterable[Fact]:
        words = text(line.payload.get("message"))
        if is_meta(words):
            return []  # the first versions showed these, too; the response_item has them
        images = [*items(line.payload.get("images")), *items(line.payload.get("local_images"))]
        words = "\n".join([*("[image]" for _ in images), *([words] if words else [])])
        return self._asked(line, "event", text(line.payload.get("client_id")) or digest(f.USER, words, line.at), words)

    def _said_by_agent(self, line: CodexLine) -> Iterable[Fact]:
        return self._answer(line, "event", "", text(line.payload.get("message")))

    def _thought_by_agent(self, line: CodexLine) -> Iterable[Fact]:
        return self._thought(line, "event", "", [text(line.payload.get("text"))])

    def _tokens(self, line: CodexLine) -> Iterable[Fact]:
        used = count(table(table(line.payload.get("info")).get("last_token_usage")).get("total_tokens"))
        if used:
            self.state["tokens"] = used
        return []

    def _response(self, line: CodexLine) -> Iterable[Fact]:
        kind = text(line.payload.get("type"))
        act = self._RESPONSES.get(kind)
        if act:
            return act(self, line)
        return [] if _SILENT(kind) else [f.UnknownRecord(f"response_item/{kind}")]

    _Act = Callable[["Reader", CodexLine], Iterable[Fact]]

    _RECORDS: ClassVar[Mapping[str, _Act]] = {
        "session_meta": _meta,
        "response_item": _response,
        "event_msg": _event,
        "turn_context": _context,
        "compacted": _compacted,
        "inter_agent_communication": _between,
    }
    _EVENTS: ClassVar[Mapping[str, _Act]] = {
        "task_started": _started,
        "turn_started": _started,
        "task_complete": _complete,
        "turn_complete": _complete,
        "turn_aborted": _aborted,
        "error": _failed,
        "thread_rolled_back": _rolled_back,
        "thread_name_updated": _renamed,
        "token_count": _tokens,
        "item_completed": _shown,
        "user_message": _said_by_user,
        "agent_message": _said_by_agent,
        "agent_reasoning": _thought_by_agent,
        "agent_reasoning_raw_content": _thought_by_agent,
        "context_compacted": _compaction_shown,
    }
    _RESPONSES: ClassVar[Mapping[str, _Act]] = {
        "message": _message,
        "agent_message": _between,
        "reasoning": _reasoning,
        "function_call": _call,
        "custom_tool_call": _call,
        "local_shell_call": _call,
        "web_search_call": _call,
        "tool_search_call": _call,
        "image_generation_call": _call,
        "function_call_output": _output,
        "custom_tool_call_output": _output,
        "tool_search_output": _output,
        "compaction": _encrypted,
        "compaction_summary": _encrypted,
        "context_compaction": _encrypted,
    }
    #: How calls ended, by the names of both forms.
    _ENDS: ClassVar[Mapping[str, Callable[[Reader, CodexLine, Mapping[str, Any]], Iterable[Fact]]]] = {
        "CommandExecution": _command,
        "exec_command_end": _command,
        "McpToolCall": _mcp,
        "mcp_tool_call_end": _mcp,
        "DynamicToolCall": _dynamic,
        "dynamic_tool_call_response": _dynamic,
        "FileChange": _patched,
        "patch_apply_end": _patched,
        "WebSearch": _searched,
    }
