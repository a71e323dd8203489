"""Cuts a session's turns into chunks that a backend can take: on turn boundaries, by estimated tokens. Pure.

    turns  1 2 3 4 5 6 7            each chunk begins with the last turn of the one before it, as `known`:
    chunks [1 2 3] [3' 4 5] [5' 6 7]   what is said there is context, and not to be proposed again

A turn that is too long is cut inside: each part repeats its prompt, as `known`. Of a long message from a tool (and of reasoning,
summaries, system words) head and tail are kept, with a mark between. Words of user and assistant continue in the next part, with
some of them twice, so that no sentence is lost at a cut. So every message is in at least one chunk where it is not `known`,
and so are all words of user and assistant.

What leaves this machine is cleaned before it is cut (`clean_chunks`): a cut through a secret would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dreamkeep.dream.backends.api import GivenMessage, TurnGiven
from dreamkeep.dream.backends.clean import clean_turns
from dreamkeep.dream.backends.model.budget import estimate

#: What a message costs besides its words.
_FRAME = 16
#: The share of a chunk that context may take: repeated turns and prompts.
_CONTEXT = 0.25
#: Signs that two parts of a long message share.
_TWICE = 200
#: Of user and assistant nothing is left out.
_WHOLE = ("user", "assistant")


def chunks(turns: Sequence[TurnGiven], max_tokens: int) -> list[tuple[TurnGiven, ...]]:
    """At least one chunk, if any turn is not known."""
    done: list[tuple[TurnGiven, ...]] = []
    current: list[TurnGiven] = []
    waiting: list[TurnGiven] = []
    size = 0  # of `current`: counted along, or a session of many turns would cost their square
    for turn in _fitting(turns, max_tokens):
        if turn.known:
            waiting.append(_context(turn, int(max_tokens * _CONTEXT / 2)))
            continue
        coming = [one for one in waiting if all(one.id != before.id for before in current)] + [turn]
        if current and size + sum(map(turn_tokens, coming)) > max_tokens:
            done.append(tuple(current))
            # The waiting turns are the context of this one; without any, the turn before it is.
            coming = [*(waiting or [_context(current[-1], int(max_tokens * _CONTEXT))]), turn]
            current, size = [], 0
        current += coming
        size += sum(map(turn_tokens, coming))
        waiting = []
    return [*done, tuple(current)] if current else done


def clean_chunks(turns: Sequence[TurnGiven], max_tokens: int) -> list[tuple[TurnGiven, ...]]:
    """The same without secrets: they are masked before anything is cut."""
    return chunks(clean_turns(turns), max_tokens)


def _context(turn: TurnGiven, most: int) -> TurnGiven:
    """A turn as context: its prompt and its last words, shortened."""
    kept: list[GivenMessage] = []
    left = most - _FRAME
    first, rest = turn.messages[:1], turn.messages[1:]
    for said in first:
        kept.append(_shortened(said, max(_FRAME * 2, left // 2)))
        left -= message_tokens(kept[0])
    last: list[GivenMessage] = []
    for said in reversed(rest):
        short = _shortened(said, max(_FRAME * 2, most // 4))
        if message_tokens(short) > left:
            break
        last.append(short)
        left -= message_tokens(short)
    return turn._replace(messages=(*kept, *reversed(last)), known=True)


# -- a turn that is too long


def _fitting(turns: Sequence[TurnGiven], max_tokens: int) -> Iterator[TurnGiven]:
    """The same turns, the long ones in parts, each small enough for a chunk with context before it."""
    most = int(max_tokens * (1 - _CONTEXT))
    for turn in turns:
        if turn.known or turn_tokens(turn) <= most:
            yield turn
        else:
            yield from _parts(turn, max_tokens, most)


def _parts(turn: TurnGiven, max_tokens: int, most: int) -> Iterator[TurnGiven]:
    prompt: TurnGiven | None = None
    current: list[GivenMessage] = []
    size = 0
    for said in turn.messages:
        for piece in _pieces(said, most):
            tokens = message_tokens(piece)
            if current and size + tokens > most:
                yield from [prompt] if prompt else []
                yield turn._replace(messages=tuple(current))
                current, size = [], 0
                prompt = _prompt(turn, max_tokens)
            current.append(piece)
            size += tokens
    if current:
        yield from [prompt] if prompt else []
        yield turn._replace(messages=tuple(current))


def _prompt(turn: TurnGiven, max_tokens: int) -> TurnGiven:
    return turn._replace(messages=(_shortened(turn.messages[0], int(max_tokens * _CONTEXT / 2)),), known=True)


def _pieces(said: GivenMessage, most: int) -> Iterator[GivenMessage]:
    if message_tokens(said) <= most:
        yield said
    elif said.role not in _WHOLE or said.tool is not None:
        yield _shortened(said, most)
    else:
        # A character is at most two tokens by our estimate (four bytes), and at least a quarter.
        rest = said.text
        while rest:
            count = _fits(rest, most - _FRAME * 2)
            yield said._replace(text=rest[:count])
            rest = rest[count - min(_TWICE, count // 4) :] if count < len(rest) else ""


def _fits(text: str, most: int) -> int:
    """How many of its characters are at most so many tokens: at least one."""
    count = min(len(text), most * 4)
    while count > 1 and estimate(text[:count]) > most:
        count = max(1, count * most // max(1, estimate(text[:count])) or count // 2)
    return count


# -- a message that is too long


def _shortened(said: GivenMessage, most: int) -> GivenMessage:
    """Head and tail, with a mark that says how much is left out between them."""
    if message_tokens(said) <= most:
        return said
    tool = said.tool
    if tool is not None and _tool_tokens(tool) > most // 2:
        tool = {key: _short_value(value, max(8, most // 4)) if key == "input" else value for key, value in tool.items()}
    left = max(_FRAME, most - _FRAME - (_tool_tokens(tool) if tool is not None else 0))
    return said._replace(text=head_and_tail(said.text, left), tool=tool)


def _short_value(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return head_and_tail(value, most)
    if _json_tokens(value) <= most:
        return value
    if isinstance(value, dict) and len(value) <= 20:
        shorter = {key: _short_value(inner, max(4, most // len(value))) for key, inner in value.items()}
        if _json_tokens(shorter) <= 2 * most:
            return shorter
    return head_and_tail(_json(value), most)


def head_and_tail(text: str, most: int) -> str:
    """Two thirds of the room for the head."""
    if estimate(text) <= most:
        return text
    head = _fits(text, max(1, most * 2 // 3 - 6))
    tail = _fits(text[::-1], max(1, most // 3 - 4))
    if head + tail >= len(text):
        return text
    return f"{text[:head]}\n[… {len(text) - head - tail} signs left out …]\n{text[len(text) - tail :]}"


# -- sizes


def turn_tokens(turn: TurnGiven) -> int:
    return _FRAME + sum(map(message_tokens, turn.messages))


def message_tokens(said: GivenMessage) -> int:
    return _FRAME + estimate(said.text) + (_tool_tokens(said.tool) if said.tool is not None else 0)


def _tool_tokens(tool: Any) -> int:
    return _json_tokens(dict(tool))


def _json_tokens(value: Any) -> int:
    return estimate(_json(value))


def _json(value: Any) -> str:
    import json

    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return str(value)[:100_000]
