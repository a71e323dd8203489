"""The meaning of Hermes WebUI's files, for recovery. Pure.

    <sid>.json, <sid>.json.bak    one object: the session's properties, `messages`, `tool_calls`, `context_messages`
    _index.json                   a list of objects, one for each session file, without its messages; newest first
    _turn_journal/*.jsonl         events of turns: submitted, worker_started, assistant_started, completed, interrupted
    _deleted_webui_sessions.json, _pruned_webui_orphans.json    {"version": 1, "ids": […]}

Assumptions, from the WebUI's published sources (nesquena/hermes-webui):

- `.bak` is the file before a save with fewer messages. There is one slot.
- When the user means to have less, a mark changes in the file that is saved, never in the one before it: `clear_generation`
  (clear), `intentional_shrink_generation` (undo, retry, truncate, squash; `truncation_watermark` is the time of the last message
  kept), `compression_anchor_*` (compress). So a backup with another mark is older, and what was taken out of it stays out. If the
  mark is the same, whatever the backup has more was lost. The WebUI accepts a mark only if it is a UUID4 in hex.
- Messages that the rows of `state.db` call rewound were taken back by the user, with or without a mark.
- The index also lists sessions without a message, which only the running WebUI has in memory.
- Messages have no ids. Two are equal if their role, content and tool ids are; equal messages are counted.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple
from uuid import UUID

from dreamkeep.agents.shared.values import digest, items, table, text
from dreamkeep.session.records import loads

Document = dict[str, Any]
Message = dict[str, Any]


class WebuiMessages(NamedTuple):
    """A session's messages in the database: those that the user took back, and all others that it has or had."""

    rewound: Sequence[Message] = ()
    others: Sequence[Message] = ()


NO_ROWS = WebuiMessages()

#: Some times are whole seconds.
_GRAIN_S = 2.0
_MARKED = ("_partial", "_error", "_recovered")
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
#: Members that the index does not repeat.
_HEAVY = frozenset(
    ("messages", "tool_calls", "context_messages", "anchor_activity_scenes", "anchor_scene_index", "message_count")
)


def parse_document(data: bytes) -> Document | None:
    """None when these bytes are no session: torn, a list, no text."""
    found = loads(data)
    if found is None or not isinstance(found.get("messages", []), list):
        return None
    return dict(found)


def encode(found: object) -> bytes:
    """As the WebUI writes it. A lone surrogate, which UTF-8 can't hold, becomes JSON's escape."""
    try:
        return json.dumps(found, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:
        return json.dumps(found, ensure_ascii=True, indent=2).encode()


def messages_of(found: Mapping[str, Any]) -> list[Message]:
    return [one for one in items(found.get("messages")) if isinstance(one, dict)]


def with_messages(found: Mapping[str, Any], messages: Sequence[Message]) -> Document:
    """The document with other messages, in the same place, and counted."""
    changed = {**found, "messages": list(messages)}
    return changed | ({"message_count": len(messages)} if "message_count" in found else {})


def parse_tombstones(data: bytes) -> frozenset[str] | None:
    """The ids in it; None when it can't be read: then nobody knows what was deleted."""
    found = loads(data)
    if found is None or found.get("version") != 1 or not isinstance(found.get("ids"), list):
        return None
    return frozenset(str(one).strip() for one in found["ids"] if one)


# -- comparing messages


def _key(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else json.dumps(content, sort_keys=True)
    calls = [text(table(one).get("id")) or text(table(one).get("call_id")) for one in items(message.get("tool_calls"))]
    return digest(text(message.get("role")), said, text(message.get("tool_call_id")), *calls)


def messages_digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """The same for the same messages."""
    return digest(*sorted(map(_key, messages)))[:16]


def is_partial(message: Mapping[str, Any]) -> bool:
    """The beginning of an answer, or an error: the WebUI removes it once it has the whole answer."""
    return any(message.get(name) for name in _MARKED)


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else text(table(part).get("text")) for part in content).strip()
    return text(content).strip()


def _blank(message: Mapping[str, Any]) -> bool:
    return not text_of(message) and not any(message.get(name) for name in ("content", "tool_calls", "attachments", "reasoning"))


def time_of(message: Mapping[str, Any]) -> float | None:
    value = message.get("timestamp")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def missing_messages(live: Sequence[Message], other: Sequence[Message], *, edited: bool = False) -> list[Message]:
    """Messages of `other` that `live` lacks. An answer that went on is the same message. `edited`: so is one with other words."""
    there = Counter(map(_key, live))
    rest = []
    for message in other:
        key = _key(message)
        if there[key] > 0:
            there[key] -= 1
        elif not _blank(message):
            rest.append(message)
    spare = []
    for message in reversed(live):  # of equal messages the first were matched
        key = _key(message)
        if there[key] > 0:
            there[key] -= 1
            spare.append(message)
    return [message for message in rest if not _goes_on(message, spare, live, edited)]


def _goes_on(message: Message, spare: list[Message], live: Sequence[Message], edited: bool) -> bool:
    """Whether a message is the beginning of one in `live`. (A match is taken out of `spare`.)"""
    words, role = text_of(message), message.get("role")
    if is_partial(message) and any(one.get("role") == role and text_of(one).startswith(words) for one in live):
        return True
    for one in spare:
        is_same = one.get("role") == role and not _blank(one) and _at_same_time(one, message)
        if is_same and ((words and text_of(one).startswith(words)) or edited):
            spare.remove(one)
            return True
    return False


def _at_same_time(one: Message, other: Message) -> bool:
    at, other_at = time_of(one), time_of(other)
    return at is not None and other_at is not None and abs(at - other_at) <= _GRAIN_S


def lost_messages(
    live: Mapping[str, Any], other: Mapping[str, Any], *, edited: bool = False, rows: WebuiMessages = NO_ROWS
) -> list[Message]:
    """What `other`, an earlier document of the session, has and `live` lacks, although the user did not intend it."""
    gone = missing_messages(messages_of(live), messages_of(other), edited=edited)
    gone = _remove_last(gone, _count_rewound([*messages_of(live), *gone], rows))
    if not gone or _is_changed_mark(live, other, "clear_generation") or _is_compressed(live, other):
        return []
    if _is_changed_mark(live, other, "intentional_shrink_generation"):
        kept = live.get("truncation_watermark")
        if isinstance(kept, bool) or not isinstance(kept, (int, float)):
            return []
        # What the user kept, and is gone all the same, was lost later.
        return [one for one in gone if (at := time_of(one)) is not None and at <= kept]
    return gone


def _is_changed_mark(live: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    return bool(live.get(name)) and live.get(name) != other.get(name)


def _is_compressed(live: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    anchor = _anchor(live)
    if anchor and anchor != _anchor(other):
        return True
    return _has_summary(live) and not _has_summary(other)


def _anchor(found: Mapping[str, Any]) -> str:
    members = [found.get(f"compression_anchor_{name}") for name in ("message_key", "summary", "mode")]
    return json.dumps(members, sort_keys=True) if any(members) else ""


def _has_summary(found: Mapping[str, Any]) -> bool:
    return any(text_of(one).startswith(_SUMMARIES) or one.get("_squash_summary") is True for one in messages_of(found))


def messages_only_in_rows(live: Mapping[str, Any], active: Mapping[str, Any], rows: WebuiMessages, until: float) -> list[Message]:
    """Messages of people and the model that the database has (`active`: its active rows, as a document), no later than `until`,
    and that `live` lacks, although the user did not intend it.

    A row may hold in other words, or twice, what is in the file. A compaction replaces rows by others. The session may have
    gone on elsewhere since the file was saved. None of that is a loss."""
    messages = messages_of(live)
    if messages and (_has_summary(active) or len(rows.others) > len(messages_of(active))):
        return []
    there = Counter(map(_role_and_words, messages))
    in_rows = {_role_and_words(one) for one in (*rows.rewound, *rows.others)}
    until = min(until, *_latest_times(live))
    missing: dict[str, dict[tuple[str, str], Message]] = {}
    for one in lost_messages(live, active, edited=True, rows=rows):
        at, words = time_of(one), _role_and_words(one)
        if words[0] in ("user", "assistant") and words[1] and words not in there and at is not None and at <= until:
            missing.setdefault(words[0], {}).setdefault(words, one)
    found = []
    for role, messages_by_words in missing.items():
        # Each message that only the file has may be one of these in other words.
        reworded = sum(1 for words in there.elements() if words[0] == role and words[1] and words not in in_rows)
        found += list(messages_by_words.values())[reworded:]
    return found


def _role_and_words(message: Mapping[str, Any]) -> tuple[str, str]:
    return text(message.get("role")), " ".join(text_of(message).split())


def _latest_times(live: Mapping[str, Any]) -> list[float]:
    """A session file need not have what came after any of these times, or lacks it by intent."""
    ends = [float("inf")]
    if live.get("active_stream_id") or live.get("pending_user_message"):
        began = live.get("pending_started_at")
        ends.append(began - _GRAIN_S if isinstance(began, (int, float)) else 0.0)
    kept = live.get("truncation_watermark")
    if isinstance(kept, (int, float)) and not isinstance(kept, bool):
        ends.append(kept)
    if messages_of(live):
        ends.append(updated_at(live) + _GRAIN_S)
    return ends


def has_blanks(found: Mapping[str, Any]) -> bool:
    return any(map(_blank, messages_of(found)))


def add_messages(live: Sequence[Message], more: Sequence[Message], other: Sequence[Message]) -> list[Message]:
    """`live` with the messages `more` of `other`, each behind what it follows there. A whole message replaces its blanked one."""
    waiting = {id(one) for one in more}
    places: dict[str, deque[int]] = {}
    for n, one in enumerate(live):
        places.setdefault(_key(one), deque()).append(n)
    blank = [n for n, one in enumerate(live) if _blank(one)]
    result = list(live)
    behind: dict[int, list[Message]] = {}
    at = -1
    for message in other:
        if id(message) not in waiting:
            found = places.get(_key(message))
            at = found.popleft() if found else at
            continue
        place = next((n for n in blank if _blanked(live[n], message)), None)
        if place is None:
            behind.setdefault(at, []).append(message)
        else:
            blank.remove(place)
            result[place], at = message, place
    return [*behind.get(-1, ()), *(one for n, shown in enumerate(result) for one in (shown, *behind.get(n, ())))]


def _blanked(one: Message, whole: Message) -> bool:
    return _blank(one) and one.get("role") == whole.get("role") and _at_same_time(one, whole)


def merge_documents(base: Mapping[str, Any], others: Iterable[Mapping[str, Any]], rows: WebuiMessages = NO_ROWS) -> Document:
    """The base with everything that was lost and that one of the others has."""
    result = dict(base)
    for other in others:
        more = lost_messages(result, other, rows=rows)
        if more:
            result = with_messages(result, add_messages(messages_of(result), more, messages_of(other)))
    return result


def later_messages(base: Mapping[str, Any], other: Mapping[str, Any]) -> list[Message]:
    """Messages of `other` from after the end of `base`. Near that end, where the two clocks may differ by their grain: those that
    `base` lacks, in the same words or in others."""
    times = [at for at in map(time_of, messages_of(base)) if at is not None]
    updated = base.get("updated_at")
    times += [float(updated)] if isinstance(updated, (int, float)) else []
    end = max(times, default=0.0)
    near = [one for one in messages_of(base) if (at := time_of(one)) is None or at > end - 2 * _GRAIN_S]
    new = [one for one in messages_of(other) if (at := time_of(one)) is not None and at > end - _GRAIN_S]
    unsure = [one for one in new if (time_of(one) or 0.0) <= end + _GRAIN_S]
    lacking = {id(one) for one in missing_messages(near, unsure, edited=True)}
    return [one for one in new if (time_of(one) or 0.0) > end + _GRAIN_S or id(one) in lacking]


def _count_rewound(messages: Sequence[Message], rows: WebuiMessages) -> Counter[str]:
    """How many of equal messages the user took back: at most those for which the database has no other row."""
    spare = Counter(map(_key, messages))
    spare.subtract(Counter(map(_key, rows.others)))
    rewound = Counter(map(_key, rows.rewound))
    return Counter({key: min(count, spare[key]) for key, count in rewound.items() if spare[key] > 0})


def _remove_last(messages: Sequence[Message], counts: Counter[str]) -> list[Message]:
    """Without so many of each. The last of equal messages go, because a user takes back from the end."""
    left, kept = Counter(counts), []
    for message in reversed(messages):
        key = _key(message)
        if left[key] > 0:
            left[key] -= 1
        else:
            kept.append(message)
    return kept[::-1]


def without_rewound(base: Mapping[str, Any], rows: WebuiMessages) -> Document:
    """`base` without what the user took back since, marked as the WebUI would have saved it."""
    messages = messages_of(base)
    kept = _remove_last(messages, _count_rewound(messages, rows))
    if len(kept) == len(messages):
        return dict(base)
    changed = dict(base)
    if isinstance(base.get("context_messages"), list):  # the model must not be given it, either
        context = [one for one in base["context_messages"] if isinstance(one, dict)]
        changed["context_messages"] = _remove_last(context, _count_rewound(context, rows))
    marks = _undo_marks(base, messages, kept)
    # Before the messages: the WebUI reads a session's properties only up to there.
    return with_messages({**{name: one for name, one in marks.items() if name not in base}, **changed, **marks}, kept)


def _undo_marks(base: Mapping[str, Any], messages: Sequence[Message], kept: Sequence[Message]) -> Document:
    """The marks of an undo that kept what stands before the first removed message. The same for the same undo."""
    first = next((n for n, (one, other) in enumerate(zip(messages, kept, strict=False)) if one is not other), len(kept))
    until = (time_of(messages[first - 1]) if first else None) or 0.0
    name = digest(text(base.get("intentional_shrink_generation")), *map(_key, messages), "", *map(_key, kept))
    generation = UUID(bytes=sha256(name.encode()).digest()[:16], version=4).hex
    return {"truncation_watermark": until, "truncation_boundary": until, "intentional_shrink_generation": generation}


def updated_at(found: Mapping[str, Any]) -> float:
    value = found.get("updated_at")
    times = [at for at in map(time_of, messages_of(found)) if at is not None]
    return float(value) if isinstance(value, (int, float)) else max(times, default=0.0)


# -- the index


def index_entry(found: Mapping[str, Any], sid: str) -> Document:
    """A session file as the index lists it."""
    messages = messages_of(found)
    pending = bool(found.get("pending_user_message"))
    times = [at for at in map(time_of, messages) if at is not None]
    return {
        **{name: value for name, value in found.items() if name not in _HEAVY and not name.startswith("_")},
        "session_id": sid,
        "message_count": max(len(messages), int(pending)),
        "last_message_at": max(times, default=found.get("updated_at")),
        "user_message_count": sum(1 for one in messages if one.get("role") == "user"),
        "has_pending_user_message": pending,
        "is_streaming": False,
    }


def parse_index(data: bytes) -> list[Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def entry_id(entry: Any) -> str:
    """The session of an entry; "" when it names none."""
    return text(table(entry).get("session_id"))


def is_unsaved(entry: Any) -> bool:
    """An entry of a session without messages: the running WebUI may have it only in memory."""
    return table(entry).get("message_count") == 0 and not table(entry).get("worktree_path")


def rebuild_index(entries: Sequence[Any] | None, there: Iterable[str], more: Mapping[str, Document]) -> list[Any]:
    """The entries of files that are there, once each; those of unsaved sessions; and `more`. Newest first."""
    alive = set(there)
    result: dict[str, Any] = {}
    for entry in entries or ():
        sid = entry_id(entry)
        if sid and sid not in result and (sid in alive or is_unsaved(entry)):
            result[sid] = entry
    result |= {sid: entry for sid, entry in more.items() if sid not in result}
    return newest_first(result.values())


def newest_first(entries: Iterable[Any]) -> list[Any]:
    return sorted(entries, key=lambda entry: -updated_at(table(entry)))


# -- turns


class WebuiTurn(NamedTuple):
    id: str
    content: str
    at: float
    stream: str
    attachments: tuple[Any, ...]
    over: bool


def fold_turns(lines: Iterable[bytes]) -> list[WebuiTurn]:
    """The events of each turn, folded, whatever their order and however many processes wrote them. Bad lines are skipped."""
    found: dict[str, WebuiTurn] = {}
    for line in lines:
        event = loads(line) or {}
        name, turn = text(event.get("event")), text(event.get("turn_id"))
        if not turn:
            continue
        known = found.get(turn) or WebuiTurn(turn, "", 0.0, "", (), False)
        if name == "submitted":
            at = event.get("created_at")
            known = known._replace(
                content=text_of(event),
                at=float(at) if isinstance(at, (int, float)) else 0.0,
                attachments=tuple(items(event.get("attachments"))),
            )
        known = known._replace(stream=known.stream or text(event.get("stream_id")))
        found[turn] = known._replace(over=True) if name in ("completed", "interrupted") else known
    return sorted(found.values(), key=lambda turn: (turn.at, turn.id))


def pending_turns(found: Sequence[WebuiTurn], live: Mapping[str, Any]) -> list[WebuiTurn]:
    """Turns that never ended and whose prompt is not in the session file: neither as a message nor as the pending prompt.

    The same words sent twice are two turns: each message stands for one of them.
    """
    prompts = sorted(
        (one for one in messages_of(live) if one.get("role") == "user"),
        key=lambda one: (time_of(one) is None, time_of(one) or 0.0),
    )
    left = []
    # Backwards, because a message may stand for an earlier turn, never for a later one.
    for turn in sorted(found, key=lambda turn: -turn.at):
        if not turn.content:
            continue
        place = next((n for n, one in enumerate(prompts) if _is_prompt(one, turn)), None)
        if place is not None:
            prompts.pop(place)
        elif not turn.over and not _is_waiting_for(live, turn):
            left.append(turn)
    return left[::-1]


def _is_prompt(message: Message, turn: WebuiTurn) -> bool:
    at = time_of(message)
    return text_of(message).startswith(turn.content) and (at is None or at + _GRAIN_S >= turn.at)


def _is_waiting_for(live: Mapping[str, Any], turn: WebuiTurn) -> bool:
    stream = text(live.get("active_stream_id"))
    return text(live.get("pending_user_message")).strip() == turn.content or bool(stream and stream == turn.stream)


def may_be_intended(live: Mapping[str, Any], turn: WebuiTurn, rows: WebuiMessages = NO_ROWS) -> bool:
    """Whether the prompt may be missing because the user cleared it or took it back. (Nothing says when that was.)"""
    if _has_prompt(rows.rewound, turn) and not _has_prompt(rows.others, turn):
        return True
    marked = live.get("clear_generation") or live.get("intentional_shrink_generation")
    return bool(marked) and updated_at(live) >= turn.at


def _has_prompt(messages: Sequence[Message], turn: WebuiTurn) -> bool:
    return any(one.get("role") == "user" and _is_prompt(one, turn) for one in messages)


def with_prompt(live: Mapping[str, Any], turn: WebuiTurn) -> Document:
    """The prompt in its place by time, before the next prompt or at the end, so never between a call and its result."""
    messages = messages_of(live)
    prompt: Message = {"role": "user", "content": turn.content, "timestamp": turn.at, "_recovered": True}
    if turn.attachments:
        prompt["attachments"] = list(turn.attachments)
    place = next(
        (n for n, one in enumerate(messages) if one.get("role") == "user" and (time_of(one) or 0.0) > turn.at), len(messages)
    )
    return with_messages({"message_count": 0, **live}, [*messages[:place], prompt, *messages[place:]])


def document_of_turn(turn: WebuiTurn, sid: str) -> Document:
    """A session of which only the first prompt is known."""
    return with_prompt(empty_document(sid, created_at=turn.at, updated_at=turn.at), turn)


def empty_document(sid: str, **more: Any) -> Document:
    """A new session's document, its members in the WebUI's order."""
    document: Document = json.loads(files(__package__).joinpath("empty_session.json").read_text(encoding="utf-8"))
    return document | {"session_id": sid} | more
