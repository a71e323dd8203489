"""Claude Code's transcripts: one JSON object a line, appended; a tree by `uuid` and `parentUuid`.

    user, assistant, attachment, system    what was said and done; `uuid` is the key of the message
    ai-title, custom-title, summary        titles
    everything else                        bookkeeping: known and silent, or `UnknownRecord`

One message of the model is several lines, one block each. A line with several blocks has the keys `uuid`, `uuid.2`, `uuid.3` …

What is a prompt: text in a `user` line that the user typed. These are not: results of tools, `isMeta` lines, the summary of a
compaction, what the client wraps in tags (`<local-command-stdout>`, `<system-reminder>`, `<ide_selection>` …), lines whose
`origin` is no human, and a subagent's talk (`isSidechain`) in the main file. A command that Claude Code runs by itself
(`<command-name>` first: `/compact`, `/model`) is no prompt; one that goes to the model (`<command-message>` first: `/init`, the
user's own) is. What was typed while the model worked arrives as the attachment `queued_command`: the user's words, inside the
current turn.

How a turn ends: by `stop_reason`; by `turn_duration` or a stop hook's summary, where an older client left `stop_reason` empty;
by an API error; by "[Request interrupted by user"; by a hook that stops it; by a `<synthetic>` answer, which the client writes
when it comes back after a crash. Where none of these was written (older clients), an answer in words as the last thing before
the next prompt means that the turn was completed. If nothing follows, nothing says how it ended. (`microcompact_boundary` only
drops old outputs of tools from the context: no boundary.)

What is written twice: a compaction may append preserved lines once more, under the same uuid, or (older) under a new uuid with
the same parent and time. So lines after a boundary are compared with those shortly before it. A repeated line keeps its first
key and says nothing about turns. A prompt with the parent of an earlier prompt, but another time, means that the user went
back; a prompt without a parent that is newer than all others, that the user went back to the very first.

Long outputs lie in `tool-results/`, and the transcript holds a preview that names the file: see files.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

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
    "hook_success": "content",  # not `stdout`: that is the hook's JSON, whose text comes in a line of its own
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

#: Tags that the client wraps around its own words in a user's line.
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
_MOST_TAGS = 20
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

#: How much the state remembers: lines before and after a boundary, uuids that a boundary preserved, prompts, edges.
_MOST_LINES = 256
_MOST_PRESERVED = 256
_MOST_PROMPTS = 32
_MOST_EDGES = 8


class _ClaudeLine(NamedTuple):
    """A line of the tree. `live`: it may begin and end turns. A copied or repeated line, or one said aside, may not."""

    data: Mapping[str, Any]
    key: str
    at: str | None
    mark: str
    live: bool
    subagent: bool


class Reader:
    """`state`: the current turn, where we are, and the latest lines and prompts, to recognise them when they are repeated."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterator[Fact]:
        data = record.data
        if record.channel == "text":
            yield from files.read_stretch(record)
        if data is None or record.source == "workflow":
            return  # whoever cut the file into lines has reported a broken one
        kind = text(data.get("type"))
        if kind in self._KINDS:
            yield from self._place(data)
            yield from self._edges(data, record.source)
            yield from self._KINDS[kind](self, self._line(data, kind, record.source))
        elif kind in _TITLES:
            yield from self._title(data, kind)
        elif kind not in _SILENT:
            yield f.UnknownRecord(kind or "?")

    # -- what every line says

    def _place(self, data: Mapping[str, Any]) -> Iterator[Fact]:
        model = text(table(data.get("message")).get("model"))
        place = f.SessionPlaced(
            cwd=text(data.get("cwd"))[:_LONGEST_PATH],
            branch=_id(data.get("gitBranch")),
            model="" if model == _SYNTHETIC_MODEL else _id(model),
            version=_id(data.get("version")),
        )
        before = items(self.state.get("place"))
        if len(before) != len(place):
            before = [""] * len(place)
        if any(new and new != old for new, old in zip(place, before, strict=True)):
            self.state["place"] = [new or old for new, old in zip(place, before, strict=True)]
            yield place

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
            self.state["edges"] = [*known, name][-_MOST_EDGES:]
            yield f.Edge(kind, session, evidence, parse_time(data.get("timestamp")))

    def _title(self, data: Mapping[str, Any], kind: str) -> Iterator[Fact]:
        name, rank = _TITLES[kind]
        title, leaf = text(data.get(name)), text(data.get("leafUuid"))
        lines = [*items(self.state.get("lately")), *items(self.state.get("before"))]
        # An old client wrote summaries of other sessions into a new file: only one whose leaf is here is ours.
        if kind == "summary" and not (leaf and any(key == leaf for key, _ in lines)):
            return
        if title.strip():
            yield f.SessionTitled(title, rank)

    # -- which line it is

    def _line(self, data: Mapping[str, Any], kind: str, source: str) -> _ClaudeLine:
        at = parse_time(data.get("timestamp"))
        content = table(data.get("message")).get("content")
        key = _id(data.get("uuid")) or digest(kind, text(data.get("timestamp")), _gist(content), text(data.get("subtype")))
        likeness = digest(kind, at, _gist(content))[:12] if at and kind in ("user", "assistant") else ""
        first_key = self._key_before_boundary(key, likeness)
        if not first_key:
            self.state["lately"] = [*items(self.state.get("lately")), [key, likeness]][-_MOST_LINES:]
        original = _id(table(data.get("forkedFrom")).get("messageUuid"))
        aside = source != "subagent" and data.get("isSidechain") is True
        mark = f.COPIED if original else f.META if aside else ""
        live = not (original or first_key or aside)
        return _ClaudeLine(data, original or first_key or key, at, mark, live, source == "subagent")

    def _key_before_boundary(self, key: str, likeness: str) -> str:
        """The key of the same line before the last boundary; "" if it was not there."""
        before = items(self.state.get("before"))
        for other_key, other_likeness in before:
            if other_key == key or (likeness and other_likeness == likeness):
                return str(other_key)
        # The boundary names what it preserved. That is a repetition only if there were more lines before than we remember.
        return key if len(before) == _MOST_LINES and key in items(self.state.get("kept")) else ""

    # -- turns

    def _prompt(self, line: _ClaudeLine, key: str, prompt: str) -> Iterator[Fact]:
        """A prompt, which is the message `key`. A live one begins a turn."""
        parent = _id(line.data.get("parentUuid"))
        prompts = items(self.state.get("prompts"))
        this = [key, parent, line.at, digest(prompt)[:12]]
        repeated = [other[0] for other in prompts if parent and line.at and other[1:] == this[1:] and other[0] != key]
        if repeated or not line.live:
            yield f.MessageSaid(f.USER, prompt, repeated[-1] if repeated else key, line.at, mark=line.mark)
            return
        siblings = [other[0] for other in prompts if parent and other[1] == parent]
        if siblings and not any(other[0] == key for other in prompts):
            yield f.MessagesRewound(line.at, siblings[-1])
        yield from self._settle_answered()
        yield from self._rewind_to_root(line, key)
        turn = _id(line.data.get("promptId"))
        if not turn or (self.state.get("turn") == turn and self.state.get("prompt") != key):
            turn = key  # a subagent's prompts all have their parent's `promptId`
        self.state.update(turn=turn, prompt=key, open=True)
        self.state["prompts"] = [*(other for other in prompts if other[0] != key), this][-_MOST_PROMPTS:]
        yield f.TurnBegan(turn, prompt, line.at, key)
        yield f.MessageSaid(f.USER, prompt, key, line.at, turn, mark=line.mark)

    def _settle_answered(self) -> Iterator[Fact]:
        """The next prompt begins. If an answer in words came last, the turn before is completed."""
        answered = text(self.state.pop("answered", None))
        if answered and self.state.get("open") and text(self.state.get("turn")):
            yield f.TurnSettled(text(self.state.get("turn")), "completed", answered)

    def _rewind_to_root(self, line: _ClaudeLine, key: str) -> Iterator[Fact]:
        """A prompt without a parent: if it is newer than all before, the user went back to the first prompt."""
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
            yield f.MessageSaid(f.SUMMARY, _flatten(content), line.key, line.at, mark=line.mark)
            return
        named = _id(data.get("promptId"))
        turn = named if line.live and named and named == self.state.get("turn") else ""
        texts: list[tuple[str, str]] = []  # (key, text) each
        results = 0
        for n, block in _blocks(content):
            kind, key = text(block.get("type")), _key(line.key, n)
            if kind == "tool_result":
                results += 1
                yield _result(block, data, key, line, turn)
            elif kind in _USER_BLOCKS:
                texts.append((key, _show_block(block)))
            else:
                yield f.UnknownRecord(f"user/{kind or '?'}")
        if results and line.live:
            self.state.pop("answered", None)
        if results or _is_meta(line):
            for key, words in texts:
                yield from self._aside(line, key, words)
        else:
            yield from self._typed(line, texts)

    def _typed(self, line: _ClaudeLine, texts: list[tuple[str, str]]) -> Iterator[Fact]:
        prompt: list[tuple[str, str]] = []
        for key, words in texts:
            if _is_stop(words):
                yield from self._aside(line, key, words)
            elif _COMMAND.match(words):
                yield from self._command(line, key, words)
            elif words.lstrip()[: len(_SHELL)] == _SHELL:
                command = f"! {_inside(words, 'bash-input')}"
                yield f.MessageSaid(f.USER, command, key, line.at, mark=line.mark or f.META)
            elif words.strip() and not _without_tags(words):
                yield from self._aside(line, key, words)
            elif words.strip():
                prompt.append((key, _without_tags(words)))
        if prompt:
            yield from self._prompt(line, prompt[0][0], "\n".join(words for _, words in prompt))

    def _command(self, line: _ClaudeLine, key: str, words: str) -> Iterator[Fact]:
        name = _inside(words, "command-name").lstrip("/")
        typed = f"/{name} {_inside(words, 'command-args')}".strip()
        tag = _COMMAND.match(words)
        if tag and tag[1] == "message" and name:
            yield from self._prompt(line, key, typed)
        else:
            yield f.MessageSaid(f.USER, typed, key, line.at, mark=line.mark or f.META)

    def _aside(self, line: _ClaudeLine, key: str, words: str) -> Iterator[Fact]:
        """Words in a user's line that are the client's, or a hook's."""
        stopped = _is_stop(words)
        mark = f.SYNTHETIC if stopped else f.HOOK if _HOOK_FEEDBACK.match(words) else f.META
        yield from _system_message(line, words, mark, key)
        if stopped:
            yield from self._settle(line, "cancelled", "interrupted by the user")

    # -- assistant

    def _assistant(self, line: _ClaudeLine) -> Iterator[Fact]:
        data = line.data
        message = table(data.get("message"))
        content = message.get("content")
        failed = data.get("isApiErrorMessage") is True
        synthetic = failed or message.get("model") == _SYNTHETIC_MODEL
        mark = line.mark or (f.SYNTHETIC if synthetic else "")
        for n, block in _blocks(content):
            yield from _answer_block(block, data, _key(line.key, n), line._replace(mark=mark))
        if line.live:
            self.state["answered"] = line.at if not synthetic and _is_answer(content) else None
        reason = text(message.get("stop_reason"))
        if failed:
            error = _flatten(content) or text(data.get("error"))
            yield from self._settle(line, "failed", error[:_LONGEST_REASON] or None)
        elif synthetic:
            yield from self._settle(line, "interrupted", "the client came back without an answer", only_open=True)
        elif reason in _ENDS:
            yield from self._settle(line, _ENDS[reason], None if reason == "end_turn" else reason)

    # -- attachment

    def _attachment(self, line: _ClaudeLine) -> Iterator[Fact]:
        attachment = table(line.data.get("attachment"))
        kind = text(attachment.get("type"))
        if kind in _HOOK_ATTACHMENTS:
            yield from self._hook(line, kind, _flatten(attachment.get(_HOOK_ATTACHMENTS[kind])))
        elif kind == "hook_blocking_error":
            yield from self._hook(line, kind, text(table(attachment.get("blockingError")).get("blockingError")))
        elif kind == "async_hook_response":
            answer = table(attachment.get("response"))
            context = text(table(answer.get("hookSpecificOutput")).get("additionalContext"))
            yield from self._hook(line, kind, context or text(answer.get("systemMessage")))
        elif kind == "queued_command":
            yield from self._queued(line, attachment)
        elif kind in _FILE_ATTACHMENTS:
            yield from _system_message(line, _file_text(attachment), f.META)
        elif kind not in _SILENT_ATTACHMENTS:
            yield f.UnknownRecord(f"attachment/{kind or '?'}")

    def _hook(self, line: _ClaudeLine, kind: str, words: str) -> Iterator[Fact]:
        yield from _system_message(line, words, f.HOOK, file=files.previewed_file(words))
        if kind == "hook_stopped_continuation":
            yield from self._settle(line, "cancelled", f"stopped by a hook: {words}"[:_LONGEST_REASON])

    def _queued(self, line: _ClaudeLine, attachment: Mapping[str, Any]) -> Iterator[Fact]:
        words = _flatten(attachment.get("prompt"))
        human = text(table(attachment.get("origin")).get("kind")) in _HUMAN and attachment.get("isMeta") is not True
        if human and text(attachment.get("commandMode")) in ("prompt", "") and _without_tags(words):
            yield f.MessageSaid(f.USER, words, line.key, line.at, mark=line.mark)
        else:
            yield from _system_message(line, words, f.META)

    # -- system

    def _system(self, line: _ClaudeLine) -> Iterator[Fact]:
        kind = text(line.data.get("subtype"))
        words = text(line.data.get("content"))
        if kind == "compact_boundary":
            yield from self._compaction(line)
        elif kind == "turn_duration" or (kind == "stop_hook_summary" and not items(line.data.get("hookErrors"))):
            yield from self._settle(line, "completed", only_open=True)
        elif kind == "local_command" and _COMMAND.match(words):
            yield from self._command(line._replace(live=False), line.key, words)
        elif kind in _TALKING_SYSTEM or kind == "local_command":
            yield from _system_message(line, words, f.META)
        elif kind not in _SILENT_SYSTEM:
            yield f.UnknownRecord(f"system/{kind}")

    def _compaction(self, line: _ClaudeLine) -> Iterator[Fact]:
        if not line.live:
            return
        facts = table(line.data.get("compactMetadata"))
        preserved = table(facts.get("preservedMessages"))
        uuids = items(preserved.get("allUuids")) or items(preserved.get("uuids"))
        self.state["kept"] = [uuid for uuid in uuids[-_MOST_PRESERVED:] if isinstance(uuid, str) and len(uuid) <= _LONGEST_ID]
        lines = [*items(self.state.get("before")), *items(self.state.get("lately"))]
        self.state["before"], self.state["lately"] = lines[-_MOST_LINES:], []
        yield f.Signal(
            "transcript",
            "completed",
            line.at,
            id=line.key,
            reason=text(facts.get("trigger")),
            before=_tokens(facts.get("preTokens")),
            after=_tokens(facts.get("postTokens")),
        )

    _KINDS: ClassVar[Mapping[str, Callable[[Reader, _ClaudeLine], Iterator[Fact]]]] = {
        "user": _user,
        "assistant": _assistant,
        "attachment": _attachment,
        "system": _system,
    }


#: Lines with titles: the member that holds the title, and its rank.
_TITLES = {"ai-title": ("aiTitle", 1), "summary": ("summary", 1), "custom-title": ("customTitle", 2)}
_USER_BLOCKS = frozenset(("text", "image", "document"))
#: Attachments that show some text to the model.
_FILE_ATTACHMENTS = _names(
    """
    file edited_text_file selected_lines_in_ide nested_memory relevant_memories plan_file_reference mcp_resource
    """
)


def _id(value: object) -> str:
    """An id that may be remembered: state must stay small whatever a line holds."""
    return text(value) if len(text(value)) <= _LONGEST_ID else digest(text(value))


def _key(uuid: str, n: int) -> str:
    return f"{uuid}.{n + 1}" if n else uuid


def _tokens(value: object) -> Mapping[str, int] | None:
    number = count(value)
    return None if number is None else {"tokens": number}


# -- content


def _blocks(content: object) -> list[tuple[int, Mapping[str, Any]]]:
    """(its number, the block) each; text in place of a block is a block of text."""
    blocks = [content] if isinstance(content, str) else items(content)
    return [(n, {"type": "text", "text": one} if isinstance(one, str) else table(one)) for n, one in enumerate(blocks)]


def _show_block(block: Mapping[str, Any]) -> str:
    """A block as text. Anything but text is named in brackets."""
    kind = text(block.get("type"))
    if kind == "text":
        return text(block.get("text"))
    if kind == "tool_reference":
        return text(block.get("tool_name"))
    return f"[{kind or 'something'}]"


def _flatten(content: object) -> str:
    return "\n".join(filter(None, (_show_block(block) for _, block in _blocks(content))))


def _gist(content: object) -> str:
    """Enough of a line's content to recognise it."""
    parts = []
    for _, block in _blocks(content)[:8]:
        ids = text(block.get("id")) or text(block.get("tool_use_id"))
        parts.append(f"{text(block.get('type'))} {ids} {text(block.get('text'))[:300]}{text(block.get('thinking'))[:300]}")
    return "\n".join(parts)


def _is_answer(content: object) -> bool:
    """Whether there are words, and no call that the model still waits for."""
    kinds = {text(block.get("type")) for _, block in _blocks(content)}
    return "text" in kinds and not any(kind.endswith("tool_use") for kind in kinds)


def _is_meta(line: _ClaudeLine) -> bool:
    """Whether the client wrote a user's line itself."""
    data = line.data
    if data.get("isMeta") is True or data.get("isVisibleInTranscriptOnly") is True or text(data.get("sourceToolUseID")):
        return True
    return not line.subagent and text(table(data.get("origin")).get("kind")) not in _HUMAN


def _is_stop(words: str) -> bool:
    return words.startswith(_STOPPED) and len(words) < _LONGEST_STOP


def _file_text(attachment: Mapping[str, Any]) -> str:
    """The text of an attachment, under its name; "" if it has none."""
    content = attachment.get("content")
    inner = table(content)
    body = text(content) or text(table(inner.get("file")).get("content")) or text(inner.get("content"))
    body = body or text(attachment.get("snippet")) or text(attachment.get("planContent"))
    names = (text(attachment.get(key)) for key in ("displayPath", "filename", "path", "planFilePath", "uri"))
    return f"{next(filter(None, names), '')}\n{body}".strip() if body else ""


# -- messages


def _system_message(line: _ClaudeLine, words: str, mark: str, key: str = "", file: str = "") -> Iterator[Fact]:
    if words.strip():
        mark = line.mark or (f.INJECTED if f.PACK in words else mark)
        yield f.MessageSaid(f.SYSTEM, words, key or line.key, line.at, mark=mark, file=file)


def _result(block: Mapping[str, Any], data: Mapping[str, Any], key: str, line: _ClaudeLine, turn: str = "") -> f.MessageSaid:
    words = _flatten(block.get("content"))
    outcome = table(data.get("toolUseResult"))
    failed = block.get("is_error") is True or outcome.get("interrupted") is True
    tool: dict[str, Any] = {"id": text(block.get("tool_use_id")), "error": failed}
    printed = _EXIT_CODE.match(words) if failed else None
    code = int(printed[1]) if printed else count(outcome.get("exitCode"))
    if code is not None:
        tool["exit_code"] = code
    mark = line.mark or (f.INJECTED if f.PACK in words else "")
    file = files.previewed_file(words, outcome.get("persistedOutputPath"))
    return f.MessageSaid(f.TOOL, words, key, line.at, turn, tool, mark, file=file)


def _answer_block(block: Mapping[str, Any], data: Mapping[str, Any], key: str, line: _ClaudeLine) -> Iterator[Fact]:
    """One block of the model's message."""
    kind = text(block.get("type"))
    if kind in ("text", "thinking"):
        words = text(block.get(kind))
        if words.strip():  # of thinking, often only the signature is kept
            yield f.MessageSaid(f.ASSISTANT if kind == "text" else f.REASONING, words, key, line.at, mark=line.mark)
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        tool = {"id": text(block.get("id")), "name": text(block.get("name")), "input": block.get("input")}
        yield f.MessageSaid(f.ASSISTANT, "", key, line.at, tool=tool, mark=line.mark)
    elif kind.endswith("_tool_result"):
        yield _result(block, data, key, line)
    elif kind == "image":
        yield f.MessageSaid(f.ASSISTANT, "[image]", key, line.at, mark=line.mark)
    elif kind not in ("redacted_thinking", "fallback"):
        yield f.UnknownRecord(f"assistant/{kind or '?'}")


# -- tags


def _inside(words: str, tag: str) -> str:
    begin = words.find(f"<{tag}>")
    end = words.find(f"</{tag}>", begin) if begin >= 0 else -1
    return words[begin + len(tag) + 2 : end].strip() if end >= 0 else ""


def _without_tags(words: str) -> str:
    """The user's words without what the client put before or after them; "" when nothing else is there."""
    for _ in range(_MOST_TAGS):
        tag = _TAG.match(words)
        end = words.find(f"</{tag[1]}>", tag.end()) if tag and tag[1] in _TAGS else -1
        if not tag or end < 0:
            break
        words = words[end + len(tag[1]) + 3 :]
    for _ in range(_MOST_TAGS):
        begin = words.rfind("<system-reminder>") if words.rstrip().endswith("</system-reminder>") else -1
        if begin < 0:
            break
        words = words[:begin]
    words = words.strip()
    return "" if words.startswith(_CAVEAT) else words


# -- comparing forks

_UUID = re.compile(rb'"uuid"\s*:\s*"([^"\\]{1,80})"')
_AT = re.compile(rb'"timestamp"\s*:\s*"([^"\\]{1,40})"')

#: In the record with which a fork of a compacted session begins.
BOUNDARY = b'"compact_boundary"'


def chain_ids(lines: Iterable[bytes]) -> Iterator[tuple[str, str | None]]:
    """(uuid, timestamp) of each line of the tree, in the order of the file, as the client wrote them.

    To compare two files: `--fork-session` copies a prefix with the same uuids and times, and leaves no pointer to its origin.
    Lines outside of the tree (titles, costs, requests …) and broken lines are left out. Only lines in which these names stand
    more than once are parsed.
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
