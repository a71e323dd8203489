"""Claude Code's transcripts: one JSON object a line, appended, a tree by `uuid`/`parentUuid`.

    user, assistant, attachment, system    what was said and done; each has a `uuid`, which is the key of its message
    ai-title, custom-title, summary        titles
    everything else                        bookkeeping: known and silent, or `UnknownRecord`

One message of the model is several lines, one block each. A line with several blocks has the keys `uuid`, `uuid.2`, `uuid.3`…

What is a prompt: text in a `user` line that the user typed. Not: results of tools, `isMeta` lines, the summary of a compaction,
what the client wraps in tags (`<local-command-stdout>`, `<system-reminder>`, `<ide_selection>`…), lines whose `origin` is no
human, talk of a subagent (`isSidechain`) in the main file. Commands that Claude Code runs by itself (`<command-name>` first:
`/compact`, `/model`) are no prompts; commands that go to the model (`<command-message>` first: `/init`, one's own) are. What was
typed while the model worked arrives as attachment `queued_command`: the user's words, inside the turn that goes on.

How a turn ends: `stop_reason`; `turn_duration` or a stop hook's summary where an older client left `stop_reason` empty; an API
error; "[Request interrupted by user"; a hook that stops it; a `<synthetic>` answer, which the client writes when it comes back
after a crash. Where none of these was written (older clients), an answer in words as the last thing before the next prompt says
that the turn was completed; with nothing behind it, nothing says so. (`microcompact_boundary` drops old outputs of tools from the
context; the talk goes on: no boundary.)

What is written again: a compaction may append preserved lines once more, under the same uuid, or (older) under a new uuid with
the same parent and time. Lines after a boundary are compared with those shortly before it: what stands there already keeps its
key and says nothing about turns. A prompt with the parent of an earlier prompt, but another time, means that the user went back;
a prompt that is newer than all others and has no parent, that it was to the very first.

What is too long lies in `tool-results/`, and the transcript holds a preview that names the file: see files.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.claude import files
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import count, digest, items, parse_time, table, text


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Lines that say nothing about the conversation.
_SILENT = _names(
    """
    queue-operation last-prompt mode permission-mode file-history-snapshot file-history-delta cost-state bridge-session
    pr-link tag content-replacement atis-latch tools-used api-request api-request-shape api-request-blob agent-name
    agent-color agent-setting progress worktree-state attribution-snapshot speculation-accept task-summary invoked_skills
    """
)
_SILENT_ATTACHMENTS = _names(
    """
    environment model deferred_tools_delta deferred_tools_record agent_listing_delta skill_listing session_context date
    date_change prompt_snapshot remote_session_change total_tokens_reminder mcp_instructions_delta hook_cancelled
    hook_permission_decision command_permissions todo todo_reminder task_reminder task_status plan_mode plan_mode_reentry
    plan_mode_exit auto_mode auto_mode_exit output_style token_usage budget_usd diagnostics directory already_read_file
    compact_file_reference opened_file_in_ide agent_mention critical_system_reminder ultrathink_effort structured_output
    edited_image_file pdf_reference verify_plan_reminder invoked_skills dynamic_skill skill_discovery compaction_reminder
    companion_intro team_context teammate_mailbox current_session_memory
    """
)
_HOOK_ATTACHMENTS = {
    "hook_success": "content",  # its stdout is the hook's JSON, whose text comes in a line of its own
    "hook_additional_context": "content",
    "hook_system_message": "content",
    "hook_non_blocking_error": "stderr",
    "hook_error_during_execution": "content",
    "hook_stopped_continuation": "message",
}
_SILENT_SYSTEM = _names(
    """
    microcompact_boundary api_error api_metrics snip_boundary file_snapshot thinking stop_hook_summary
    """
)
_TALKING_SYSTEM = _names(
    """
    informational away_summary scheduled_task_fire memory_saved permission_retry agents_killed bridge_status
    model_refusal_fallback
    """
) | {""}

#: What the client wraps around its own words in a user's line.
_TAGS = _names(
    """
    local-command-caveat local-command-stdout local-command-stderr bash-stdout bash-stderr system-reminder ide_opened_file
    ide_selection ide_diagnostics task-notification teammate-message agent-message channel user-memory-input
    user-prompt-submit-hook session-start-hook post-tool-use-hook new-diagnostics background-task-input tick
    """
)
_TAG = re.compile(r"\s*<([a-z_-]{3,40})(?:\s[^>]*)?>")
_COMMAND = re.compile(r"\s*<command-(name|message)>")
_SHELL = "<bash-input>"
_CAVEAT = "Caveat: The messages below were generated by the user while running local commands"
_STOPPED = "[Request interrupted by user"
_HOOK_FEEDBACK = re.compile(r"\s*(?:\w{2,40} hook (?:feedback|blocking error|stopped continuation)|<\w[\w-]{2,40}-hook>)")
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,10})\b")
_TAGS_CUT = 20
_LONGEST_STOP = 200
_LONGEST_REASON = 300
_LONGEST_ID = 200
_LONGEST_PATH = 4096

_ENDS = {
    "end_turn": "completed",
    "stop_sequence": "completed",
    "max_tokens": "completed",
    "refusal": "failed",
    "model_context_window_exceeded": "failed",
}
_HUMAN = ("human", "user", "")
_SYNTHETIC_MODEL = "<synthetic>"

_LATELY = 256  # lines remembered before and after a boundary
_KEPT = 256
_PROMPTS = 32
_EDGES = 8


class _ClaudeLine(NamedTuple):
    """A line of the tree. `live`: it may begin and end turns; not so what is copied, repeated, or said aside."""

    data: Mapping[str, Any]
    key: str
    at: str | None
    mark: str
    live: bool
    subagent: bool


class Reader:
    """`state`: the turn that goes on, where we are, and the latest lines and prompts, to know them when they come again."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterator[Fact]:
        data = record.data
        if record.channel == "text":
            yield from files.written(record)
        if data is None or record.source == "workflow":
            return  # whoever cut the file into lines has told that this one is broken
        kind = text(data.get("type"))
        act = _ACTS.get(kind)
        if act is not None:
            yield from self._placed(data)
            yield from self._edges(data, record.source)
            yield from act(self, self._line(data, kind, record.source))
        elif kind in _TITLES:
            yield from self._titled(data, kind)
        elif kind not in _SILENT:
            yield f.UnknownRecord(kind or "?")

    # -- what every line says

    def _placed(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        model = text(table(data.get("message")).get("model"))
        said = f.SessionPlaced(
            cwd=text(data.get("cwd"))[:_LONGEST_PATH],
            branch=_id(data.get("gitBranch")),
            model="" if model == _SYNTHETIC_MODEL else _id(model),
            version=_id(data.get("version")),
        )
        before = items(self.state.get("place"))
        if len(before) != len(said):
            before = [""] * len(said)
        if any(new and new != old for new, old in zip(said, before, strict=True)):
            self.state["place"] = [new or old for new, old in zip(said, before, strict=True)]
            yield said

    def _edges(self, data: Mapping[str, Any], source: str) -> Iterator[Fact]:
        origin = table(data.get("forkedFrom"))
        if text(origin.get("sessionId")):
            yield from self._edge("fork", _id(origin.get("sessionId")), f"forkedFrom {_id(origin.get('messageUuid'))}", data)
        if source == "subagent" and text(data.get("sessionId")):
            evidence = f"its lines carry the session's id, and agentId {_id(data.get('agentId'))}"
            yield from self._edge("subagent", _id(data.get("sessionId")), evidence, data)

    def _edge(self, kind: str, session: str, evidence: str, data: Mapping[str, Any]) -> Iterator[Fact]:
        known = items(self.state.get("edges"))
        name = f"{kind} {session}"
        if name not in known:
            self.state["edges"] = [*known, name][-_EDGES:]
            yield f.Edge(kind, session, evidence, parse_time(data.get("timestamp")))

    def _titled(self, data: Mapping[str, Any], kind: str) -> Iterator[Fact]:
        name, rank = _TITLES[kind]
        title = text(data.get(name))
        # An old client wrote summaries of other sessions into a new file: only one whose leaf is here is ours.
        if kind == "summary" and not self._was_lately(text(data.get("leafUuid"))):
            return
        if title.strip():
            yield f.SessionTitled(title, rank)

    # -- which line it is

    def _line(self, data: Mapping[str, Any], kind: str, source: str) -> _ClaudeLine:
        at = parse_time(data.get("timestamp"))
        content = table(data.get("message")).get("content")
        key = _id(data.get("uuid")) or digest(kind, text(data.get("timestamp")), _gist(content), text(data.get("subtype")))
        original = _id(table(data.get("forkedFrom")).get("messageUuid"))
        likeness = digest(kind, at, _gist(content))[:12] if at and kind in ("user", "assistant") else ""
        again = self._known_before(key, likeness)
        if not again:
            self.state["lately"] = [*items(self.state.get("lately")), [key, likeness]][-_LATELY:]
        aside = source != "subagent" and data.get("isSidechain") is True
        mark = f.COPIED if original else f.META if aside else ""
        live = not (original or again or aside)
        return _ClaudeLine(data, original or again or key, at, mark, live, source == "subagent")

    def _known_before(self, key: str, likeness: str) -> str:
        """The key under which the line stands before the last boundary, if it does."""
        before = items(self.state.get("before"))
        for pair in before:
            if pair[0] == key or (likeness and pair[1] == likeness):
                return str(pair[0])
        # The boundary names what it preserved; it is a repetition only if there is more before than we remember.
        return key if len(before) == _LATELY and key in items(self.state.get("kept")) else ""

    def _was_lately(self, key: str) -> bool:
        lines = [*items(self.state.get("lately")), *items(self.state.get("before"))]
        return bool(key) and any(pair[0] == key for pair in lines)

    # -- turns

    def _begin(self, line: _ClaudeLine, key: str, prompt: str) -> Iterator[Fact]:
        """The facts of a prompt, said as the message `key`."""
        parent = _id(line.data.get("parentUuid"))
        prompts = items(self.state.get("prompts"))
        seen = [key, parent, line.at, digest(prompt)[:12]]
        repeated = [one[0] for one in prompts if parent and line.at and one[1:] == seen[1:] and one[0] != key]
        if repeated:
            yield f.MessageSaid(f.USER, prompt, repeated[-1], line.at, mark=line.mark)
            return
        if line.live:
            siblings = [one[0] for one in prompts if parent and one[1] == parent]
            if siblings and not any(one[0] == key for one in prompts):
                yield f.MessagesRewound(line.at, siblings[-1])
            yield from self._answered()
            yield from self._at_the_root(line, key)
            turn = self._turn_id(line, key)
            self.state.update(turn=turn, prompt=key, open=True)
            self.state["prompts"] = [*(one for one in prompts if one[0] != key), seen][-_PROMPTS:]
            yield f.TurnBegan(turn, prompt, line.at, key)
            yield f.MessageSaid(f.USER, prompt, key, line.at, turn, mark=line.mark)
        else:
            yield f.MessageSaid(f.USER, prompt, key, line.at, mark=line.mark)

    def _answered(self) -> Iterator[Fact]:
        """The next prompt begins: was the last thing an answer in words, then that turn is over."""
        answered = text(self.state.pop("answered", None))
        if answered and self.state.get("open") and text(self.state.get("turn")):
            yield f.TurnSettled(text(self.state.get("turn")), "completed", answered)

    def _at_the_root(self, line: _ClaudeLine, key: str) -> Iterator[Fact]:
        latest, root = text(self.state.get("latest")), text(self.state.get("root"))
        newer = bool(line.at) and text(line.at) > latest
        if newer:
            self.state["latest"] = line.at
        if line.data.get("parentUuid", "") is not None:
            return
        # What a compaction repeats has its old time, however long ago that was.
        if root and newer and root != key:
            yield f.MessagesRewound(line.at, root, by=key)
        if newer or not root:
            self.state["root"] = key

    def _turn_id(self, line: _ClaudeLine, key: str) -> str:
        """The agent's own id, unless another prompt has it already (a subagent's prompts all have their parent's)."""
        named = _id(line.data.get("promptId"))
        return key if not named or (self.state.get("turn") == named and self.state.get("prompt") != key) else named

    def _turn_of(self, line: _ClaudeLine) -> str:
        named = _id(line.data.get("promptId"))
        return named if line.live and named and named == self.state.get("turn") else ""

    def _settle(self, line: _ClaudeLine, state: str, reason: str | None = None, *, only_open: bool = False) -> Iterator[Fact]:
        turn = text(self.state.get("turn"))
        if line.live and turn and (self.state.get("open") or not only_open):
            self.state["open"] = False
            yield f.TurnSettled(turn, state, line.at, reason)

    # -- user

    def _user(self, line: _ClaudeLine) -> Iterator[Fact]:
        data = line.data
        content = table(data.get("message")).get("content")
        if data.get("isCompactSummary") is True:
            yield f.MessageSaid(f.SUMMARY, _flat(content), line.key, line.at, mark=line.mark)
            return
        blocks = _blocks(content)
        results = [n for n, block in blocks if block.get("type") == "tool_result"]
        words: list[tuple[int, str]] = []
        if results and line.live:
            self.state.pop("answered", None)
        for n, block in blocks:
            if n in results:
                yield _result(block, data, _key(line.key, n), line, self._turn_of(line))
            elif text(block.get("type")) in _WORDS:
                words.append((n, _shown(block)))
            else:
                yield f.UnknownRecord(f"user/{text(block.get('type')) or '?'}")
        if results or self._is_meta(line):
            for n, said in words:
                yield from self._aside(line, _key(line.key, n), said)
        else:
            yield from self._typed(line, words)

    def _is_meta(self, line: _ClaudeLine) -> bool:
        data = line.data
        if data.get("isMeta") is True or data.get("isVisibleInTranscriptOnly") is True or text(data.get("sourceToolUseID")):
            return True
        return not line.subagent and text(table(data.get("origin")).get("kind")) not in _HUMAN

    def _typed(self, line: _ClaudeLine, words: list[tuple[int, str]]) -> Iterator[Fact]:
        prompt: list[tuple[int, str]] = []
        for n, said in words:
            if said.startswith(_STOPPED) and len(said) < _LONGEST_STOP:
                yield from self._aside(line, _key(line.key, n), said)
            elif _COMMAND.match(said):
                yield from self._command(line, _key(line.key, n), said)
            elif said.lstrip()[: len(_SHELL)] == _SHELL:
                yield f.MessageSaid(
                    f.USER, f"! {_inside(said, 'bash-input')}", _key(line.key, n), line.at, mark=line.mark or f.META
                )
            elif said.strip() and not _untagged(said):
                yield from self._aside(line, _key(line.key, n), said)
            elif said.strip():
                prompt.append((n, said))
        if prompt:
            first = prompt[0][0]
            yield from self._begin(line, _key(line.key, first), "\n".join(_untagged(said) for _, said in prompt))

    def _command(self, line: _ClaudeLine, key: str, said: str) -> Iterator[Fact]:
        name = _inside(said, "command-name").lstrip("/")
        typed = f"/{name} {_inside(said, 'command-args')}".strip()
        found = _COMMAND.match(said)
        if found and found[1] == "message" and name:
            yield from self._begin(line, key, typed)
        else:
            yield f.MessageSaid(f.USER, typed, key, line.at, mark=line.mark or f.META)

    def _aside(self, line: _ClaudeLine, key: str, said: str) -> Iterator[Fact]:
        """What stands in a user's line, but the client, or a hook, said it."""
        stopped = said.startswith(_STOPPED) and len(said) < _LONGEST_STOP
        mark = f.SYNTHETIC if stopped else f.HOOK if _HOOK_FEEDBACK.match(said) else f.META
        if said.strip():
            yield f.MessageSaid(f.SYSTEM, said, key, line.at, mark=line.mark or _handed_in(said, mark))
        if stopped:
            yield from self._settle(line, "cancelled", "interrupted by the user")

    # -- assistant

    def _assistant(self, line: _ClaudeLine) -> Iterator[Fact]:
        data = line.data
        message = table(data.get("message"))
        failed = data.get("isApiErrorMessage") is True
        synthetic = failed or message.get("model") == _SYNTHETIC_MODEL
        mark = line.mark or (f.SYNTHETIC if synthetic else "")
        for n, block in _blocks(message.get("content")):
            yield from _answer(block, data, _key(line.key, n), line._replace(mark=mark))
        reason = text(message.get("stop_reason"))
        if line.live:
            self.state["answered"] = line.at if not synthetic and _is_answer(message.get("content")) else None
        if failed:
            why = _flat(message.get("content")) or text(data.get("error"))
            yield from self._settle(line, "failed", why[:_LONGEST_REASON] or None)
        elif synthetic:
            yield from self._settle(line, "interrupted", "the client came back without an answer", only_open=True)
        elif reason in _ENDS:
            yield from self._settle(line, _ENDS[reason], None if reason == "end_turn" else reason)

    # -- attachment

    def _attachment(self, line: _ClaudeLine) -> Iterator[Fact]:
        what = table(line.data.get("attachment"))
        kind = text(what.get("type"))
        if kind in _HOOK_ATTACHMENTS:
            yield from self._hooked(line, kind, _flat(what.get(_HOOK_ATTACHMENTS[kind])))
        elif kind == "hook_blocking_error":
            yield from self._hooked(line, kind, text(table(what.get("blockingError")).get("blockingError")))
        elif kind == "async_hook_response":
            answer = table(what.get("response"))
            context = text(table(answer.get("hookSpecificOutput")).get("additionalContext"))
            yield from self._hooked(line, kind, context or text(answer.get("systemMessage")))
        elif kind == "queued_command":
            yield from self._queued(line, what)
        elif kind in _FILES:
            said = _file(what)
            if said:
                yield f.MessageSaid(f.SYSTEM, said, line.key, line.at, mark=line.mark or _handed_in(said, f.META))
        elif kind not in _SILENT_ATTACHMENTS:
            yield f.UnknownRecord(f"attachment/{kind or '?'}")

    def _hooked(self, line: _ClaudeLine, kind: str, said: str) -> Iterator[Fact]:
        if said.strip():
            mark = line.mark or _handed_in(said, f.HOOK)
            yield f.MessageSaid(f.SYSTEM, said, line.key, line.at, mark=mark, file=files.named(said))
        if kind == "hook_stopped_continuation":
            yield from self._settle(line, "cancelled", f"stopped by a hook: {said}"[:_LONGEST_REASON])

    def _queued(self, line: _ClaudeLine, what: Mapping[str, Any]) -> Iterator[Fact]:
        said = _flat(what.get("prompt"))
        human = text(table(what.get("origin")).get("kind")) in _HUMAN and what.get("isMeta") is not True
        if not said.strip():
            return
        if human and text(what.get("commandMode")) in ("prompt", "") and _untagged(said):
            yield f.MessageSaid(f.USER, said, line.key, line.at, mark=line.mark)
        else:
            yield f.MessageSaid(f.SYSTEM, said, line.key, line.at, mark=line.mark or _handed_in(said, f.META))

    # -- system

    def _system(self, line: _ClaudeLine) -> Iterator[Fact]:
        kind = text(line.data.get("subtype"))
        said = text(line.data.get("content"))
        if kind == "compact_boundary":
            yield from self._compacted(line)
        elif kind == "turn_duration" or (kind == "stop_hook_summary" and not items(line.data.get("hookErrors"))):
            yield from self._settle(line, "completed", only_open=True)
        elif kind == "local_command" and _COMMAND.match(said):
            yield from self._command(line._replace(live=False), line.key, said)
        elif kind in _TALKING_SYSTEM or kind == "local_command":
            if said.strip():
                yield f.MessageSaid(f.SYSTEM, said, line.key, line.at, mark=line.mark or _handed_in(said, f.META))
        elif kind not in _SILENT_SYSTEM:
            yield f.UnknownRecord(f"system/{kind}")

    def _compacted(self, line: _ClaudeLine) -> Iterator[Fact]:
        about = table(line.data.get("compactMetadata"))
        kept = table(about.get("preservedMessages"))
        uuids = items(kept.get("allUuids")) or items(kept.get("uuids"))
        if not line.live:
            return
        self.state["kept"] = [uuid for uuid in uuids[-_KEPT:] if isinstance(uuid, str) and len(uuid) <= _LONGEST_ID]
        lines = [*items(self.state.get("before")), *items(self.state.get("lately"))]
        self.state["before"], self.state["lately"] = lines[-_LATELY:], []
        yield f.Signal(
            "transcript",
            "completed",
            line.at,
            id=line.key,
            reason=text(about.get("trigger")),
            before=_tokens(about.get("preTokens")),
            after=_tokens(about.get("postTokens")),
        )


_ACTS = {"user": Reader._user, "assistant": Reader._assistant, "attachment": Reader._attachment, "system": Reader._system}
_TITLES = {"ai-title": ("aiTitle", 1), "summary": ("summary", 1), "custom-title": ("customTitle", 2)}
_WORDS = frozenset(("text", "image", "document"))
#: Attachments that show the model some text: what to name it by.
_FILES = _names(
    """
    file edited_text_file selected_lines_in_ide nested_memory relevant_memories plan_file_reference mcp_resource
    """
)


def _id(value: object) -> str:
    """An id that may be remembered: state must stay small whatever a line holds."""
    return text(value) if len(text(value)) <= _LONGEST_ID else digest(text(value))


def _key(uuid: str, n: int) -> str:
    return f"{uuid}.{n + 1}" if n else uuid


def _blocks(content: object) -> list[tuple[int, Mapping[str, Any]]]:
    if isinstance(content, str):
        return [(0, {"type": "text", "text": content})]
    return [(n, {"type": "text", "text": one} if isinstance(one, str) else table(one)) for n, one in enumerate(items(content))]


def _shown(block: Mapping[str, Any]) -> str:
    """A block as text; what is no text is named."""
    kind = text(block.get("type"))
    if kind == "text":
        return text(block.get("text"))
    if kind == "tool_reference":
        return text(block.get("tool_name"))
    return f"[{kind or 'something'}]"


def _flat(content: object) -> str:
    return "\n".join(filter(None, (_shown(block) for _, block in _blocks(content))))


def _gist(content: object) -> str:
    """Enough of a line's content to know it again."""
    seen = []
    for _, block in _blocks(content)[:8]:
        ids = text(block.get("id")) or text(block.get("tool_use_id"))
        seen.append(f"{text(block.get('type'))} {ids} {text(block.get('text'))[:300]}{text(block.get('thinking'))[:300]}")
    return "\n".join(seen)


def _result(block: Mapping[str, Any], data: Mapping[str, Any], key: str, line: _ClaudeLine, turn: str = "") -> f.MessageSaid:
    said = _flat(block.get("content"))
    outcome = table(data.get("toolUseResult"))
    failed = block.get("is_error") is True or outcome.get("interrupted") is True
    tool: dict[str, Any] = {"id": text(block.get("tool_use_id")), "error": failed}
    found = _EXIT_CODE.match(said) if failed else None
    code = int(found[1]) if found else count(outcome.get("exitCode"))
    if code is not None:
        tool["exit_code"] = code
    file = files.named(said, outcome.get("persistedOutputPath"))
    return f.MessageSaid(f.TOOL, said, key, line.at, turn, tool, line.mark or _handed_in(said, ""), file=file)


def _answer(block: Mapping[str, Any], data: Mapping[str, Any], key: str, line: _ClaudeLine) -> Iterator[Fact]:
    """One block of the model's message."""
    kind = text(block.get("type"))
    if kind == "text":
        said = text(block.get("text"))
        if said.strip():
            yield f.MessageSaid(f.ASSISTANT, said, key, line.at, mark=line.mark)
    elif kind == "thinking":
        said = text(block.get("thinking"))
        if said.strip():  # often only its signature is kept
            yield f.MessageSaid(f.REASONING, said, key, line.at, mark=line.mark)
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        tool = {"id": text(block.get("id")), "name": text(block.get("name")), "input": block.get("input")}
        yield f.MessageSaid(f.ASSISTANT, "", key, line.at, tool=tool, mark=line.mark)
    elif kind.endswith("_tool_result"):
        yield _result(block, data, key, line)
    elif kind == "image":
        yield f.MessageSaid(f.ASSISTANT, "[image]", key, line.at, mark=line.mark)
    elif kind not in ("redacted_thinking", "fallback"):
        yield f.UnknownRecord(f"assistant/{kind or '?'}")


def _inside(said: str, tag: str) -> str:
    begin = said.find(f"<{tag}>")
    end = said.find(f"</{tag}>", begin) if begin >= 0 else -1
    return said[begin + len(tag) + 2 : end].strip() if end >= 0 else ""


def _untagged(said: str) -> str:
    """Without what the client put before or after the user's words; "" when nothing else is there."""
    for _ in range(_TAGS_CUT):
        found = _TAG.match(said)
        end = said.find(f"</{found[1]}>", found.end()) if found and found[1] in _TAGS else -1
        if not found or end < 0:
            break
        said = said[end + len(found[1]) + 3 :]
    for _ in range(_TAGS_CUT):
        begin = said.rfind("<system-reminder>") if said.rstrip().endswith("</system-reminder>") else -1
        if begin < 0:
            break
        said = said[:begin]
    said = said.strip()
    return "" if said.startswith(_CAVEAT) else said


def _is_answer(content: object) -> bool:
    """Words, and nothing that the model still waits for."""
    kinds = {text(block.get("type")) for _, block in _blocks(content)}
    return "text" in kinds and not any(kind.endswith("tool_use") for kind in kinds)


def _handed_in(said: str, mark: str) -> str:
    return f.INJECTED if f.PACK in said else mark


def _file(what: Mapping[str, Any]) -> str:
    content = what.get("content")
    inner = table(content)
    body = text(content) or text(table(inner.get("file")).get("content")) or text(inner.get("content"))
    body = body or text(what.get("snippet")) or text(what.get("planContent"))
    names = (text(what.get(key)) for key in ("displayPath", "filename", "path", "planFilePath", "uri"))
    name = next(filter(None, names), "")
    return f"{name}\n{body}".strip() if body else ""


def _tokens(value: object) -> Mapping[str, int] | None:
    number = count(value)
    return None if number is None else {"tokens": number}


_UUID = re.compile(rb'"uuid"\s*:\s*"([^"\\]{1,80})"')
_AT = re.compile(rb'"timestamp"\s*:\s*"([^"\\]{1,40})"')


#: In the record with which a fork of a compacted session begins.
BOUNDARY = b'"compact_boundary"'


def chain_ids(lines: Iterable[bytes]) -> Iterator[tuple[str, str | None]]:
    """(uuid, timestamp) of each line of the tree, in the order of the file, as the client wrote them.

    For comparing two files: `--fork-session` copies a prefix with the same uuids and times, and leaves no pointer to where it
    came from. Lines without a place in the tree (titles, costs, requests…) and broken lines are left out. Only lines in which
    these names stand more than once are parsed.
    """
    for line in lines:
        if b'"parentUuid"' not in line:
            continue
        uuids, times = _UUID.findall(line), _AT.findall(line)
        if len(uuids) == 1 and len(times) <= 1 and line.rstrip().endswith(b"}"):
            yield uuids[0].decode("utf-8", "replace"), times[0].decode("utf-8", "replace") if times else None
            continue
        try:
            data = table(json.loads(line))
        except (ValueError, RecursionError):
            continue
        if text(data.get("uuid")):
            yield text(data.get("uuid")), text(data.get("timestamp")) or None
