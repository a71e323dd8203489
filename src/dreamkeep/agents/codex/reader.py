"""Codex CLI's rollouts → facts. Each line is `{timestamp, ordinal?, type, payload, metadata?}`.

Observed (0.166, `paginated`): session_meta, turn_context, world_state, response_item/*, event_msg/*, token_usage_record,
compacted. From its sources: `legacy` files (no ordinals; user_message and agent_message instead of item_completed), forks,
subagents, encrypted compactions, rollbacks, and the bare lines without payload of its first versions.

* Each text is written twice: as response_item (for the model) and as event_msg (for the user). The first one counts, and its twin
  is dropped (`is_new_text`). So files that have only one of the two lose nothing. A tool's result is shown as soon as either is
  there; both have the key of the call.
* What the client says in the user's or developer's name (environment, skills, hooks) is marked. Newer files name the kind of each
  piece of content; in older ones it shows by how the text begins.
* A turn begins with its prompt, which comes after task_started. Without a prompt there is no turn (a manual compaction).
* One compaction is one `compacted` and one ContextCompaction (legacy: context_compacted) in the same turn: one identity. Of
  `replacement_history`, a copy, only the summary is read, and only when it stands nowhere else.
* A fork's or subagent's file begins with its parent's records: all below `subagent_history_start_ordinal`, or (legacy forks,
whose
  copies get new times) until a turn whose id (a UUIDv7, so a time) is not older than the thread's own.
* A turn that a crash cut is followed by the next one, and nothing says how it ended: it stays unsettled. In files from before
  task_started and task_complete that is so for every turn. There, an answer in words as the last thing before the next prompt
  means that the turn was completed.
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
from dreamkeep.agents.shared.reader_state import is_new_text, note_prompt, remember, rewind_turns
from dreamkeep.agents.shared.values import arguments, count, digest, items, parse_time, table, text

_PAUSE_S = 5

#: Records that say nothing about the conversation.
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
    """`state`: `id` and `edge` of the thread; `next` ordinal; `copy` while the file repeats a parent's records; the current
    `turn`; `calls`, `twins` and `last` to pair records; and what is known of the latest `compaction` and `summary`."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.data is None:
            return []  # whoever cut the file into lines has reported a broken one
        if record.source == "names":
            name = text(record.data.get("thread_name"))
            return [f.SessionTitled(name, 2)] if name else []
        line = _line(record.data)
        facts: list[Fact] = [*self._check_ordinal(line)]
        if "copy" in self.state and line.kind != "session_meta":
            if self._is_copy(line):
                return [*facts, *self._mark_copies(self._facts(line))]
            facts += self._end_copies(line)
        return [*facts, *self._facts(line)]

    def _facts(self, line: CodexLine) -> Iterable[Fact]:
        if line.kind in self._RECORDS:
            return self._RECORDS[line.kind](self, line)
        return [] if _SILENT(line.kind) else [f.UnknownRecord(line.kind or "?")]

    def _check_ordinal(self, line: CodexLine) -> Iterable[Fact]:
        expected, ordinal = self.state.get("next"), line.ordinal
        if ordinal is None:
            first = expected is not None and not self.state.get("uncounted")
            self.state["uncounted"] = True
            return [f.OddRecord("ordinal", "a record without an ordinal among those that have one")] if first else []
        self.state["next"] = ordinal + 1
        self.state.pop("uncounted", None)
        if expected is None or ordinal == expected or (ordinal == 0 and line.kind == "session_meta"):
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
            # A copy of the parent's head: only the first one is this file's own.
            if "edge" in self.state and "copy" not in self.state:
                self.state["copy"] = {"born": known, "at": self.state.get("born_at")}
            return []
        git = table(payload.get("git"))
        placed = f.SessionPlaced(
            cwd=text(payload.get("cwd")),
            branch=text(git.get("branch")),
            version=text(payload.get("cli_version")),
            remote=text(git.get("repository_url")),
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
        # Copies are written in one go. Without ids, a prompt after a pause is the first that was typed here.
        typed = text(line.payload.get("type")) in ("task_started", "turn_started", "user_message") or is_prompt(line.payload)
        return not (typed and seconds(copy.get("last"), line.at) > _PAUSE_S)

    def _mark_copies(self, facts: Iterable[Fact]) -> Iterable[Fact]:
        copy = self.state["copy"]
        for fact in facts:
            if isinstance(fact, f.MessageSaid):
                copy["through"] = fact.key
                copy["last"] = fact.at
                yield fact._replace(mark=f.COPIED)
            elif isinstance(fact, f.Signal):
                yield fact._replace(historic=True)
            elif isinstance(fact, f.UnknownRecord | f.OddRecord):
                yield fact

    def _end_copies(self, line: CodexLine) -> Iterable[Fact]:
        copy = self.state.pop("copy")
        for key in ("turn", "twins", "last", "compaction"):
            self.state.pop(key, None)
        kind, session, evidence = self.state["edge"]
        return [f.Edge(kind, session, evidence, line.at, copy["through"])] if copy.get("through") else []

    # -- turns

    def _turn(self, payload: Mapping[str, Any]) -> str:
        return turn_named(payload) or str(self.state.get("turn", {}).get("id", ""))

    def _start_turn(self, line: CodexLine) -> Iterable[Fact]:
        turn = turn_named(line.payload)
        self.state["tasks"] = True
        if turn != self.state.get("turn", {}).get("id"):
            self.state["turn"] = {"id": turn}
            self.state.pop("twins", None)
        return []

    def _prompt(self, line: CodexLine, prompt: str, key: str) -> tuple[str, list[Fact]]:
        """The turn of a user's message. The first message in a turn begins it."""
        named, current = turn_named(line.payload), self.state.get("turn", {})
        running = "" if current.get("made") or current.get("done") else str(current.get("id", ""))
        turn = named or running or key
        if current.get("id") == turn and current.get("prompt"):
            return turn, []  # the user spoke during the turn
        same = current if current.get("id") == turn else {}
        facts: list[Fact] = [] if same else self._settle_answered()
        self.state["turn"] = {**same, "id": turn, "prompt": True, "made": not (named or running)}
        note_prompt(self.state, key)
        return turn, [*facts, f.TurnBegan(turn, prompt, line.at, key)]

    def _settle_answered(self) -> list[Fact]:
        """In a file that never says how a turn ends: if an answer in words came last, the turn before is completed."""
        turn = self.state.get("turn", {})
        if not turn.get("made") or turn.get("done") or not turn.get("answered") or self.state.get("tasks"):
            return []
        return [f.TurnSettled(turn["id"], "completed", turn["answered"])]

    def _note_answer(self, at: str | None) -> None:
        if self.state.get("turn", {}).get("made"):
            self.state["turn"] = {**self.state["turn"], "answered": at}

    def _complete_turn(self, line: CodexLine) -> Iterable[Fact]:
        turn, current = self._turn(line.payload), self.state.get("turn", {})
        self.state["tasks"] = True
        error = message_of(line.payload.get("error")) or current.get("error", "")
        failed = error and not line.payload.get("last_agent_message")
        facts = self._settle(line, "failed" if failed else "completed", error or None)
        compaction = self.state.get("compaction", {})
        if turn and compaction.get("turn") == turn and not current.get("prompt"):
            # There was no prompt in this turn: the user asked for the compaction.
            facts.append(f.Signal("transcript", "completed", line.at, compaction["id"], reason="manual", turn=turn))
        return facts

    def _abort_turn(self, line: CodexLine) -> Iterable[Fact]:
        reason = text(line.payload.get("reason"))
        states = {"interrupted": "cancelled", "replaced": "cancelled", "review_ended": "cancelled", "budget_limited": "failed"}
        return self._settle(line, states.get(reason, "interrupted"), reason or None)

    def _settle(self, line: CodexLine, state: str, reason: str | None) -> list[Fact]:
        turn, current = self._turn(line.payload), self.state.get("turn", {})
        if current.get("id") == turn:
            self.state["turn"] = {**current, "done": True}
        return [f.TurnSettled(turn, state, line.at, reason)]

    def _note_error(self, line: CodexLine) -> Iterable[Fact]:
        """An error. Whether it ends the turn shows when the turn completes."""
        self.state.setdefault("turn", {"id": ""})["error"] = text(line.payload.get("message"))[:500] or "error"
        return []

    def _roll_back(self, line: CodexLine) -> Iterable[Fact]:
        return rewind_turns(self.state, count(line.payload.get("num_turns")) or 0, line.at)

    def _context(self, line: CodexLine) -> Iterable[Fact]:
        return [f.SessionPlaced(text(line.payload.get("cwd")), "", text(line.payload.get("model")))]

    def _rename(self, line: CodexLine) -> Iterable[Fact]:
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
            *self._compaction(line, "record", own, before={"tokens": before} if before else None),
            *self._summary(line, message),
        ]

    def _compaction_event(self, line: CodexLine) -> Iterable[Fact]:
        own = text(table(line.payload.get("item")).get("id")) or digest(self._turn(line.payload), line.at)
        after = self.state.get("tokens")
        return self._compaction(line, "event", own, after={"tokens": after} if after else None)

    def _sealed_compaction(self, line: CodexLine) -> Iterable[Fact]:
        sealed = text(line.payload.get("encrypted_content"))
        return self._compaction(line, "sealed", text(line.payload.get("id")) or digest(sealed or line.at))

    def _compaction(
        self, line: CodexLine, by: str, own: str, before: Mapping[str, int] | None = None, after: Mapping[str, int] | None = None
    ) -> Iterable[Fact]:
        """Records of different kinds in one turn report one compaction. A second one of the same kind reports another."""
        turn, current = self._turn(line.payload), self.state.get("compaction", {})
        kinds = current.get("by", {})
        if not current or current["turn"] != turn or kinds.get(by, own) != own:
            current, kinds = {"id": own, "turn": turn}, {}
        elif by in kinds:
            return []  # the very same record again
        self.state["compaction"] = {**current, "by": {**kinds, by: own}}
        running = self.state.get("turn", {})
        reason = "auto" if running.get("prompt") and not running.get("done") else ""
        id = current["id"]
        return [f.Signal("transcript", "completed", line.at, id, reason=reason, before=before, after=after, turn=turn)]

    def _summary(self, line: CodexLine, message: str) -> Iterable[Fact]:
        if not message.strip():
            return []
        key, known = self.state.get("summary", ("", ""))
        if known != digest(message):
            key = self._answer_in(message) or digest(f.SUMMARY, message)
            self.state["summary"] = [key, digest(message)]
        return [f.MessageSaid(f.SUMMARY, message, key, line.at, self._turn(line.payload))]

    def _answer_in(self, message: str) -> str:
        """The key of the model's last answer, if the summary ends with it: then they are the same message."""
        key, size, words = self.state.get("last", ("", 0, ""))
        return str(key) if size and digest(message[-size:]) == words else ""

    # -- messages

    def _message(self, line: CodexLine) -> Iterable[Fact]:
        payload, role = line.payload, text(line.payload.get("role"))
        if role == "assistant":
            return self._agent_message(line, "response", text(payload.get("id")), words_in(payload.get("content")))
        facts: list[Fact] = []
        for n, (mark, words) in enumerate(marked(payload, role)):
            key = text(payload.get("id")) or digest(role, words, line.at)
            key = f"{key}#{n}" if n else key
            if mark == f.COMPACTED:
                facts += self._summary(line, words)
            elif mark or role != "user":
                said_by = f.USER if role == "user" else f.SYSTEM
                facts.append(f.MessageSaid(said_by, words, key, line.at, self._turn(payload), mark=mark or f.META))
            else:
                facts += self._user_message(line, "response", key, words)
        return facts

    def _user_message(self, line: CodexLine, source: str, key: str, words: str) -> Iterable[Fact]:
        if not words.strip() or not is_new_text(self.state, source, f.USER, words.replace("[image]", "")):
            return []
        turn, facts = self._prompt(line, words, key)
        return [*facts, f.MessageSaid(f.USER, words, key, line.at, turn)]

    def _agent_message(self, line: CodexLine, source: str, key: str, words: str) -> Iterable[Fact]:
        role = f.SUMMARY if line.metadata.get("compaction_output") else f.ASSISTANT
        if not words.strip() or not is_new_text(self.state, source, f.ASSISTANT, words):
            return []
        key = key or digest(role, words, line.at)
        self.state["last"] = [key, len(words), digest(words)]
        if role == f.SUMMARY and "tokens" in self.state:
            self.state["full"] = self.state["tokens"]
        self._note_answer(line.at if role == f.ASSISTANT else None)
        return [f.MessageSaid(role, words, key, line.at, self._turn(line.payload))]

    def _thinking(self, line: CodexLine, source: str, key: str, parts: list[str]) -> Iterable[Fact]:
        new = [part for part in parts if part.strip() and is_new_text(self.state, source, f.REASONING, part)]
        if not new:
            return []
        key = key or digest(f.REASONING, *new, line.at)
        key = key if len(new) == len(parts) else f"{key}#rest"
        return [f.MessageSaid(f.REASONING, "\n\n".join(new), key, line.at, self._turn(line.payload))]

    def _reasoning(self, line: CodexLine) -> Iterable[Fact]:
        parts = [*items(line.payload.get("summary")), *items(line.payload.get("content"))]
        return self._thinking(line, "response", text(line.payload.get("id")), [text(table(part).get("text")) for part in parts])

    def _agents_talk(self, line: CodexLine) -> Iterable[Fact]:
        """What one agent says to another. The form is known from the sources only."""
        payload = line.payload
        words = words_in(payload.get("content")) or text(payload.get("message")) or text(payload.get("text"))
        key = text(payload.get("id")) or digest("between", words, line.at)
        return [f.MessageSaid(f.SYSTEM, words, key, line.at, self._turn(payload), mark=f.META)] if words.strip() else []

    # -- tools

    def _call(self, line: CodexLine) -> Iterable[Fact]:
        payload = line.payload
        nameless = {"local_shell_call": "local_shell", "web_search_call": "web_search", "tool_search_call": "tool_search"}
        name = tool_name(payload.get("namespace"), payload.get("name"))
        name = name or nameless.get(text(payload.get("type")), "image_generation")
        inputs = (payload.get(key) for key in ("arguments", "input", "action", "revised_prompt"))
        asked = next((value for value in inputs if value is not None), None)
        call = text(payload.get("call_id")) or text(payload.get("id")) or digest(name, asked, line.at)
        return [self._call_message(line, call, name, asked)]

    def _call_message(self, line: CodexLine, call: str, name: str, asked: object) -> Fact:
        self._note_call(call, name=name)
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
            self._note_call(call, exit_code=code, error=code != 0)
        if succeeded is not None:
            self._note_call(call, error=not succeeded)
        return [self._result_message(line, call, words)]

    def _finished_call(
        self, line: CodexLine, done: Mapping[str, Any], call: str, name: str, asked: object, words: str
    ) -> Iterable[Fact]:
        """A call with its end, as the user saw it."""
        facts: list[Fact] = [] if call in self.state.get("calls", {}) else [self._call_message(line, call, name, asked)]
        code = done.get("exit_code")
        if isinstance(code, int) and not isinstance(code, bool):
            self._note_call(call, exit_code=code, error=code != 0)
        elif done.get("status") in ("failed", "declined") or done.get("success") is False or done.get("error"):
            self._note_call(call, error=True)
        elif done.get("status") == "completed" or done.get("success") is True:
            self._note_call(call, error=False)
        return [*facts, self._result_message(line, call, words)]

    def _result_message(self, line: CodexLine, call: str, words: str) -> Fact:
        self._note_answer(None)
        tool = {"id": call, **self.state.get("calls", {}).get(call, {})}
        return f.MessageSaid(f.TOOL, words, f"result:{call}", line.at, self._turn(line.payload), tool)

    def _note_call(self, call: str, **known: Any) -> None:
        remember(self.state, "calls", call, {**self.state.get("calls", {}).get(call, {}), **known})

    def _command(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        words = text(done.get("aggregated_output")) or text(done.get("formatted_output"))
        words = words or text(done.get("stdout")) + text(done.get("stderr"))
        return self._finished_call(line, done, call_id(done), "shell", {"command": done.get("command")}, words)

    def _mcp(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        asked = table(done.get("invocation")) or done
        result = table(done.get("result"))
        answer = table(result.get("Ok")) or result
        problem = message_of(done.get("error")) or message_of(result.get("Err"))
        failed = problem or answer.get("isError") or answer.get("is_error")
        status = {"error": True} if failed else {"status": "completed"}
        name = tool_name(f"mcp__{text(asked.get('server'))}", asked.get("tool"))
        words = words_in(answer.get("content")) or problem
        return self._finished_call(line, status, call_id(done), name, asked.get("arguments"), words)

    def _dynamic(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        name = tool_name(done.get("namespace"), done.get("tool"))
        words = words_in(done.get("content_items")) or message_of(done.get("error"))
        return self._finished_call(line, done, call_id(done), name, done.get("arguments"), words)

    def _patch(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        words = text(done.get("stdout")) + text(done.get("stderr"))
        return self._finished_call(line, done, call_id(done), "apply_patch", {"changes": done.get("changes")}, words)

    def _search(self, line: CodexLine, done: Mapping[str, Any]) -> Iterable[Fact]:
        call = call_id(done)
        known = call in self.state.get("calls", {})
        return [] if known else [self._call_message(line, call, "web_search", done.get("action") or {"query": done.get("query")})]

    # -- event_msg and response_item

    def _event(self, line: CodexLine) -> Iterable[Fact]:
        kind = text(line.payload.get("type"))
        if kind in self._FINISHED:
            return self._FINISHED[kind](self, line, line.payload) if call_id(line.payload) else []
        act = self._EVENTS.get(kind)
        if act:
            return act(self, line)
        return [] if _SILENT(kind) else [f.UnknownRecord(f"event_msg/{kind}")]

    def _item(self, line: CodexLine) -> Iterable[Fact]:
        done = table(line.payload.get("item"))
        kind = text(done.get("type"))
        if kind in self._FINISHED:
            return self._FINISHED[kind](self, line, done) if call_id(done) else []
        key = text(done.get("id"))
        if kind == "UserMessage":
            words = words_in(done.get("content"))
            return self._user_message(line, "event", key or digest(f.USER, words, line.at), words)
        if kind == "AgentMessage":
            return self._agent_message(line, "event", key, words_in(done.get("content")))
        if kind == "Reasoning":
            parts = [*items(done.get("summary_text")), *items(done.get("raw_content"))]
            return self._thinking(line, "event", key, [text(part) for part in parts])
        if kind == "Plan":
            return self._agent_message(line, "event", key, text(done.get("text")))
        if kind == "HookPrompt":
            words = "\n".join(text(table(part).get("text")) for part in items(done.get("fragments")))
            mark = f.INJECTED if f.PACK in words else f.HOOK
            return [
                f.MessageSaid(f.USER, words, key or digest("hook", words, line.at), line.at, self._turn(line.payload), mark=mark)
            ]
        if kind == "ContextCompaction":
            return self._compaction_event(line)
        return [] if _SILENT(kind) else [f.UnknownRecord(f"item_completed/{kind}")]

    def _user_event(self, line: CodexLine) -> Iterable[Fact]:
        words = text(line.payload.get("message"))
        if is_meta(words):
            return []  # the first versions showed these to the user, too; the response_item has them
        images = [*items(line.payload.get("images")), *items(line.payload.get("local_images"))]
        words = "\n".join([*("[image]" for _ in images), *([words] if words else [])])
        return self._user_message(line, "event", text(line.payload.get("client_id")) or digest(f.USER, words, line.at), words)

    def _agent_event(self, line: CodexLine) -> Iterable[Fact]:
        return self._agent_message(line, "event", "", text(line.payload.get("message")))

    def _thinking_event(self, line: CodexLine) -> Iterable[Fact]:
        return self._thinking(line, "event", "", [text(line.payload.get("text"))])

    def _note_tokens(self, line: CodexLine) -> Iterable[Fact]:
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
        "inter_agent_communication": _agents_talk,
    }
    _EVENTS: ClassVar[Mapping[str, _Act]] = {
        "task_started": _start_turn,
        "turn_started": _start_turn,
        "task_complete": _complete_turn,
        "turn_complete": _complete_turn,
        "turn_aborted": _abort_turn,
        "error": _note_error,
        "thread_rolled_back": _roll_back,
        "thread_name_updated": _rename,
        "token_count": _note_tokens,
        "item_completed": _item,
        "user_message": _user_event,
        "agent_message": _agent_event,
        "agent_reasoning": _thinking_event,
        "agent_reasoning_raw_content": _thinking_event,
        "context_compacted": _compaction_event,
    }
    _RESPONSES: ClassVar[Mapping[str, _Act]] = {
        "message": _message,
        "agent_message": _agents_talk,
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
        "compaction": _sealed_compaction,
        "compaction_summary": _sealed_compaction,
        "context_compaction": _sealed_compaction,
    }
    #: Calls that ended, by their names in both forms.
    _FINISHED: ClassVar[Mapping[str, Callable[[Reader, CodexLine, Mapping[str, Any]], Iterable[Fact]]]] = {
        "CommandExecution": _command,
        "exec_command_end": _command,
        "McpToolCall": _mcp,
        "mcp_tool_call_end": _mcp,
        "DynamicToolCall": _dynamic,
        "dynamic_tool_call_response": _dynamic,
        "FileChange": _patch,
        "patch_apply_end": _patch,
        "WebSearch": _search,
    }
