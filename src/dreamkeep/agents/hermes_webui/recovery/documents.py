"""Hermes WebUI's files, as recovery must understand them. Pure.

    <sid>.json, <sid>.json.bak    one object: what is said of the session, `messages`, `tool_calls`, `context_messages`
    _index.json                   a list of objects, one for each session file, without its messages; newest first
    _turn_journal/*.jsonl         events of turns: submitted, worker_started, assistant_started, completed, interrupted
    _deleted_webui_sessions.json, _pruned_webui_orphans.json    {"version": 1, "ids": […]}

Assumed, from the WebUI's published sources (nesquena/hermes-webui): `.bak` is the file before a save with fewer messages, one
slot; an intent changes a mark in the file that is saved, and never in the one before it: `clear_generation` (clear),
`intentional_shrink_generation` (undo, retry, truncate, squash; `truncation_watermark` is the time of the last message kept),
`compression_anchor_*` (compress). So a backup with another mark is from before the intent, and what the intent took away from
it stays away; with the same mark, whatever it has more was lost. A mark counts for the WebUI only if it is a UUID4 in hex. What
the rows of `state.db` say was taken back was so, with or without a mark. The index also lists sessions that only the running
WebUI knows, with no message yet. Messages have no ids: one is its role, its content and its tool ids, as often as it is there.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from dreamkeep.agents.shared.values import digest, items, table, text
from dreamkeep.session.records import loads

Document = dict[str, Any]
Message = dict[str, Any]


class WebuiMessages(NamedTuple):
    """What a database tells of a session's messages: those that the user took back, and all others that it has or had."""

    rewound: Sequence[Message] = ()
    others: Sequence[Message] = ()


UNTOLD = WebuiMessages()

#: A clock's grain in seconds: some times are whole seconds.
_GRAIN_S = 2.0
_MARKED = ("_partial", "_error", "_recovered")
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
#: What an entry of the index does not repeat.
_HEAVY = frozenset(
    ("messages", "tool_calls", "context_messages", "anchor_activity_scenes", "anchor_scene_index", "message_count")
)


def document(data: bytes) -> Document | None:
    """None when these bytes are no session: torn, a list, no text."""
    found = loads(data)
    if found is None or not isinstance(found.get("messages", []), list):
        return None
    return dict(found)


def written_list(entries: Sequence[Any]) -> bytes:
    return _written(list(entries))


def written(found: Mapping[str, Any]) -> bytes:
    return _written(dict(found))


def _written(found: object) -> bytes:
    """As the WebUI writes it; a lone surrogate, which is no UTF-8, as JSON's escape."""
    try:
        return json.dumps(found, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:
        return json.dumps(found, ensure_ascii=True, indent=2).encode()


def messages_of(found: Mapping[str, Any]) -> list[Message]:
    return [one for one in items(found.get("messages")) if isinstance(one, dict)]


def with_messages(found: Mapping[str, Any], messages: Sequence[Message]) -> Document:
    """In the place where they were, and counted."""
    changed = {**found, "messages": list(messages)}
    return changed | ({"message_count": len(messages)} if "message_count" in found else {})


def ids_in(data: bytes) -> frozenset[str] | None:
    """Of a file of tombstones; None when it can't be read: then nobody knows who is deleted."""
    found = loads(data)
    if found is None or found.get("version") != 1 or not isinstance(found.get("ids"), list):
        return None
    return frozenset(str(one).strip() for one in found["ids"] if one)


# -- what one has and the other has not


def _key(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else json.dumps(content, sort_keys=True)
    calls = [text(table(one).get("id")) or text(table(one).get("call_id")) for one in items(message.get("tool_calls"))]
    return digest(text(message.get("role")), said, text(message.get("tool_call_id")), *calls)


def mark(messages: Sequence[Mapping[str, Any]]) -> str:
    """The same for the same messages."""
    return digest(*sorted(map(_key, messages)))[:16]


def is_marked(message: Mapping[str, Any]) -> bool:
    """A beginning, an error: the WebUI takes such away when it has the whole."""
    return any(message.get(name) for name in _MARKED)


def words(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else text(table(part).get("text")) for part in content).strip()
    return text(content).strip()


def _blank(message: Mapping[str, Any]) -> bool:
    return not words(message) and not any(message.get(name) for name in ("content", "tool_calls", "attachments", "reasoning"))


def time_of(message: Mapping[str, Any]) -> float | None:
    value = message.get("timestamp")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def missing(live: Sequence[Message], other: Sequence[Message], *, edited: bool = False) -> list[Message]:
    """Messages of `other` that `live` has not. An answer that went on is the same one. `edited`: so is one with other words."""
    there = Counter(map(_key, live))
    rest = []
    for message in other:
        key = _key(message)
        if there[key] > 0:
            there[key] -= 1
        elif not _blank(message):
            rest.append(message)
    spare = []
    for message in reversed(live):  # of equal ones the first were matched
        key = _key(message)
        if there[key] > 0:
            there[key] -= 1
            spare.append(message)
    return [message for message in rest if not _goes_on(message, spare, live, edited)]


def _goes_on(message: Message, spare: list[Message], live: Sequence[Message], edited: bool) -> bool:
    partial = is_marked(message)
    said, role = words(message), message.get("role")
    if partial and any(one.get("role") == role and words(one).startswith(said) for one in live):
        return True
    for one in spare:
        same = one.get("role") == role and not _blank(one) and _merge_messages(time_of(one), time_of(message))
        if same and ((said and words(one).startswith(said)) or edited):
            spare.remove(one)
            return True
    return False


def _merge_messages(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) <= _GRAIN_S


def lost(
    live: Mapping[str, Any], other: Mapping[str, Any], *, edited: bool = False, told: WebuiMessages = UNTOLD
) -> list[Message]:
    """What `other`, an earlier document of the session, has and `live` lacks, and nobody meant to take away."""
    gone = missing(messages_of(live), messages_of(other), edited=edited)
    gone = _cut(gone, _taken_back([*messages_of(live), *gone], told))
    if not gone or _cleared(live, other) or _compressed(live, other):
        return []
    generation = live.get("intentional_shrink_generation")
    if generation and generation != other.get("intentional_shrink_generation"):
        kept = live.get("truncation_watermark")
        if isinstance(kept, bool) or not isinstance(kept, (int, float)):
            return []
        # What the user kept, and is gone all the same, was lost later.
        return [one for one in gone if (at := time_of(one)) is not None and at <= kept]
    return gone


def _cleared(live: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    generation = live.get("clear_generation")
    return bool(generation) and generation != other.get("clear_generation")


def _compressed(live: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    anchor = _anchor(live)
    if anchor and anchor != _anchor(other):
        return True
    return _has_summary(live) and not _has_summary(other)


def _anchor(found: Mapping[str, Any]) -> str:
    held = [found.get(f"compression_anchor_{name}") for name in ("message_key", "summary", "mode")]
    return json.dumps(held, sort_keys=True) if any(held) else ""


def _has_summary(found: Mapping[str, Any]) -> bool:
    return any(words(one).startswith(_SUMMARIES) or one.get("_squash_summary") is True for one in messages_of(found))


def only_rows_have(live: Mapping[str, Any], rows: Mapping[str, Any], told: WebuiMessages, until: float) -> list[Message]:
    """What people and the model said by rows of the database (`rows`: those that are active, as a document), no later than
    `until`, and `live` lacks, and nobody meant to take away.

    A row may say in other words, or twice, what is in the file; a compaction puts rows in the place of others, and the session
    may have gone on elsewhere since the file was saved: none of that is a loss."""
    messages = messages_of(live)
    if messages and (_has_summary(rows) or len(told.others) > len(messages_of(rows))):
        return []
    there = Counter(map(_words_of, messages))
    known = {_words_of(one) for one in (*told.rewound, *told.others)}
    until = min(until, *_known_ends(live))
    gone: dict[str, dict[tuple[str, str], Message]] = {}
    for one in lost(live, rows, edited=True, told=told):
        at, said = time_of(one), _words_of(one)
        if said[0] in ("user", "assistant") and said[1] and said not in there and at is not None and at <= until:
            gone.setdefault(said[0], {}).setdefault(said, one)
    found = []
    for role, missed in gone.items():
        others = sum(1 for said in there.elements() if said[0] == role and said[1] and said not in known)
        found += list(missed.values())[others:]
    return found


def _words_of(message: Mapping[str, Any]) -> tuple[str, str]:
    return text(message.get("role")), " ".join(words(message).split())


def _known_ends(live: Mapping[str, Any]) -> list[float]:
    """Of what came later than these, a session file need not know, or has it no more by intent."""
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


def union(live: Sequence[Message], more: Sequence[Message], other: Sequence[Message]) -> list[Message]:
    """`live` with the messages `more` of `other`, each behind what it follows there. What was blanked gives way to its whole."""
    waiting = {id(one) for one in more}
    places: dict[str, deque[int]] = {}
    for n, one in enumerate(live):
        places.setdefault(_key(one), deque()).append(n)
    blank = [n for n, one in enumerate(live) if _blank(one)]
    shown = list(live)
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
            shown[place], at = message, place
    return [*behind.get(-1, ()), *(one for n, held in enumerate(shown) for one in (held, *behind.get(n, ())))]


def _blanked(one: Message, whole: Message) -> bool:
    return _blank(one) and one.get("role") == whole.get("role") and _merge_messages(time_of(one), time_of(whole))


def merged(base: Mapping[str, Any], others: Iterable[Mapping[str, Any]], told: WebuiMessages = UNTOLD) -> Document:
    """The base with what each of the others has that was lost."""
    result = dict(base)
    for other in others:
        more = lost(result, other, told=told)
        if more:
            result = with_messages(result, union(messages_of(result), more, messages_of(other)))
    return result


def later(base: Mapping[str, Any], other: Mapping[str, Any]) -> list[Message]:
    """Messages of `other` that were said after all that `base` knows of. Around its end, where the clocks of the two may differ
    by their grain, those that `base` has not, in these words or in others."""
    known = [at for at in map(time_of, messages_of(base)) if at is not None]
    updated = base.get("updated_at")
    known += [float(updated)] if isinstance(updated, (int, float)) else []
    end = max(known, default=0.0)
    near = [one for one in messages_of(base) if (at := time_of(one)) is None or at > end - 2 * _GRAIN_S]
    new = [one for one in messages_of(other) if (at := time_of(one)) is not None and at > end - _GRAIN_S]
    there = {id(one) for one in missing(near, [one for one in new if (time_of(one) or 0.0) <= end + _GRAIN_S], edited=True)}
    return [one for one in new if (time_of(one) or 0.0) > end + _GRAIN_S or id(one) in there]


def _taken_back(messages: Sequence[Message], told: WebuiMessages) -> Counter[str]:
    """How many of equal messages the user took back: at most those for which the database has no other row."""
    spare = Counter(map(_key, messages))
    spare.subtract(Counter(map(_key, told.others)))
    back = Counter(map(_key, told.rewound))
    return Counter({key: min(count, spare[key]) for key, count in back.items() if spare[key] > 0})


def _cut(messages: Sequence[Message], back: Counter[str]) -> list[Message]:
    """Without so many of each: the last of equal ones, for a user takes back from the end."""
    left, kept = Counter(back), []
    for message in reversed(messages):
        key = _key(message)
        if left[key] > 0:
            left[key] -= 1
        else:
            kept.append(message)
    return kept[::-1]


def without(base: Mapping[str, Any], told: WebuiMessages) -> Document:
    """`base` without what was taken back since, and with the mark of that, as the WebUI would have saved it."""
    messages = messages_of(base)
    kept = _cut(messages, _taken_back(messages, told))
    if len(kept) == len(messages):
        return dict(base)
    changed = dict(base)
    if isinstance(base.get("context_messages"), list):  # or the model would still be given it
        given = [one for one in base["context_messages"] if isinstance(one, dict)]
        changed["context_messages"] = _cut(given, _taken_back(given, told))
    marks = _undone(base, messages, kept)
    # Before the messages: the WebUI reads what is said of a session only up to there.
    return with_messages({**{name: one for name, one in marks.items() if name not in base}, **changed, **marks}, kept)


def _undone(base: Mapping[str, Any], messages: Sequence[Message], kept: Sequence[Message]) -> Document:
    """The mark of an undo that kept what stands before the first message that is gone. The same for the same undo."""
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


def entry(found: Mapping[str, Any], sid: str) -> Document:
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


def listed(data: bytes) -> list[Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def names(one: Any) -> str:
    """Which session an entry is of; "" when it says of none."""
    return text(table(one).get("session_id"))


def is_unsaved(one: Any) -> bool:
    """An entry of a session without messages: the running WebUI may have it in memory only."""
    return table(one).get("message_count") == 0 and not table(one).get("worktree_path")


def rebuilt(entries: Sequence[Any] | None, there: Iterable[str], more: Mapping[str, Document]) -> list[Any]:
    """The entries of files that are there, once each; those of unsaved sessions; and `more`. Newest first."""
    alive = set(there)
    result: dict[str, Any] = {}
    for one in entries or ():
        sid = names(one)
        if sid and sid not in result and (sid in alive or is_unsaved(one)):
            result[sid] = one
    result |= {sid: one for sid, one in more.items() if sid not in result}
    return newest_first(result.values())


def newest_first(entries: Iterable[Any]) -> list[Any]:
    return sorted(entries, key=lambda one: -updated_at(table(one)))


# -- turns


class WebuiTurn(NamedTuple):
    id: str
    content: str
    at: float
    stream: str
    attachments: tuple[Any, ...]
    over: bool


def turns(lines: Iterable[bytes]) -> list[WebuiTurn]:
    """All events of a turn folded, in whatever order and by however many processes they were written. Bad lines tell nothing."""
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
                content=words(event),
                at=float(at) if isinstance(at, (int, float)) else 0.0,
                attachments=tuple(items(event.get("attachments"))),
            )
        known = known._replace(stream=known.stream or text(event.get("stream_id")))
        found[turn] = known._replace(over=True) if name in ("completed", "interrupted") else known
    return sorted((one for one in found.values()), key=lambda one: (one.at, one.id))


def pending(found: Sequence[WebuiTurn], live: Mapping[str, Any]) -> list[WebuiTurn]:
    """Turns that nothing ended and whose prompt is not in the session file: neither as a message nor as what it waits for.

    The same words sent twice are two turns: each message stands for one of them.
    """
    prompts = sorted(
        (one for one in messages_of(live) if one.get("role") == "user"),
        key=lambda one: (time_of(one) is None, time_of(one) or 0.0),
    )
    left = []
    # From the last one on: a message may stand for a turn before it, never for one behind it.
    for turn in sorted(found, key=lambda one: -one.at):
        if not turn.content:
            continue
        place = next((n for n, one in enumerate(prompts) if _is_prompt(one, turn)), None)
        if place is not None:
            prompts.pop(place)
        elif not turn.over and not _waits_for(live, turn):
            left.append(turn)
    return left[::-1]


def _is_prompt(message: Message, turn: WebuiTurn) -> bool:
    at = time_of(message)
    return words(message).startswith(turn.content) and (at is None or at + _GRAIN_S >= turn.at)


def _waits_for(live: Mapping[str, Any], turn: WebuiTurn) -> bool:
    stream = text(live.get("active_stream_id"))
    return text(live.get("pending_user_message")).strip() == turn.content or bool(stream and stream == turn.stream)


def may_be_meant(live: Mapping[str, Any], turn: WebuiTurn, told: WebuiMessages = UNTOLD) -> bool:
    """Whether the prompt may be missing because it was cleared or taken back; when that was, nothing tells."""
    if _has_prompt(told.rewound, turn) and not _has_prompt(told.others, turn):
        return True
    marked = live.get("clear_generation") or live.get("intentional_shrink_generation")
    return bool(marked) and updated_at(live) >= turn.at


def _has_prompt(messages: Sequence[Message], turn: WebuiTurn) -> bool:
    return any(one.get("role") == "user" and _is_prompt(one, turn) for one in messages)


def with_prompt(live: Mapping[str, Any], turn: WebuiTurn) -> Document:
    """The prompt in its place in time, before the next prompt or at the end: never between a call and its result."""
    messages = messages_of(live)
    prompt: Message = {"role": "user", "content": turn.content, "timestamp": turn.at, "_recovered": True}
    if turn.attachments:
        prompt["attachments"] = list(turn.attachments)
    place = next(
        (n for n, one in enumerate(messages) if one.get("role") == "user" and (time_of(one) or 0.0) > turn.at), len(messages)
    )
    return with_messages({"message_count": 0, **live}, [*messages[:place], prompt, *messages[place:]])


def begun_by(turn: WebuiTurn, sid: str) -> Document:
    """A session of which nothing but its first prompt is known."""
    return with_prompt(bare(sid, created_at=turn.at, updated_at=turn.at), turn)


#: The members of a session file in the WebUI's order, and what a new session has there.
_BARE: Mapping[str, Any] = {
    "session_id": "",
    "title": "Untitled",
    "workspace": "",
    "model": None,
    "model_provider": None,
    "created_at": 0.0,
    "updated_at": 0.0,
    "pinned": False,
    "archived": False,
    "project_id": None,
    "profile": None,
    "input_tokens": 0,
    "output_tokens": 0,
    "estimated_cost": None,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
    "active_stream_id": None,
    "pending_user_message": None,
    "pending_attachments": [],
    "pending_started_at": None,
    "compression_anchor_visible_idx": None,
    "compression_anchor_message_key": None,
    "compression_anchor_summary": None,
    "pre_compression_snapshot": False,
    "truncation_watermark": None,
    "truncation_boundary": None,
    "clear_generation": None,
    "intentional_shrink_generation": None,
    "parent_session_id": None,
    "worktree_path": None,
    "worktree_branch": None,
    "worktree_repo_root": None,
    "worktree_created_at": None,
    "is_cli_session": False,
    "source_tag": "webui",
    "raw_source": "webui",
    "session_source": "webui",
    "source_label": "WebUI",
    "read_only": False,
    "message_count": 0,
    "messages": [],
    "tool_calls": [],
    "context_messages": [],
}


def bare(sid: str, **more: Any) -> Document:
    return json.loads(json.dumps(dict(_BARE))) | {"session_id": sid} | more  # type: ignore[no-any-return]
