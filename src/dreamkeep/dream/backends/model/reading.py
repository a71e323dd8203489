"""Turns a session's digest into judged items, by requests that anybody may answer at any time. Pure.

    session ─► batches ─► read ─► items, checked ─► challenge ─► verdicts ─► judged
               (a large session gives several; small ones of a project share one)

`advance` takes the answers that there are and returns what is still to be asked. The answers come under the requests' ids, from a
model behind HTTP, a command, the agent in its own session, or a folder of files that somebody answers tomorrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

from dreamkeep.dream.backends.model.budget import estimate
from dreamkeep.dream.backends.model.items import (
    DROP,
    Item,
    Material,
    UnreadableAnswer,
    Verdict,
    given_of,
    read_items,
    read_verdicts,
    reworded,
)
from dreamkeep.dream.backends.model.requests import Doubt, Excerpt, Request, RequestSource, challenge_request, read_request
from dreamkeep.dream.backends.tool_words import ToolWords
from dreamkeep.secrets.redact import redact
from dreamkeep.session.messages import Message
from dreamkeep.session.reading.digest import DigestLine, digest, fold, place_of
from dreamkeep.session.reading.origin import OWN_WORDS

#: The most tokens of one session in a request; of small sessions that share one; and how many may share it.
PART_TOKENS, SHARED_TOKENS, MOST_SHARED = 20_000, 6_000, 6
#: How many items one challenge holds.
_CHALLENGED_AT_ONCE = 12
#: How many lines around the evidence a challenge shows; and how many characters of the lines around, the evidence, and other
#: lines that the user typed.
_AROUND, _AROUND_TEXT, _QUOTED_TEXT, _LATER_TEXT = 4, 500, 2400, 240

ACTIVE, SUGGESTED = "active", "suggested"


class ModelReply(NamedTuple):
    """An answer, as text or parsed JSON. `cut`: it was cut off because of its length."""

    found: Any
    cut: bool = False


class SessionText(NamedTuple):
    """A session to read. Its `messages` contain no secrets. `read`: ranges of seqs that were read before."""

    id: str
    agent: str
    project: str
    title: str
    cwd: str
    messages: tuple[Message, ...]
    read: tuple[tuple[int, int], ...] = ()
    #: (id, title) each.
    tasks: tuple[tuple[str, str], ...] = ()
    #: Lines in the user's messages that an agent wrote earlier, in another session.
    heard: frozenset[str] = frozenset()

    def knows(self, place: str) -> bool:
        return any(first <= seq_of(place) <= last for first, last in self.read)


def seq_of(place: str) -> int:
    return int(place.partition(".")[0])


class ReadBatch(NamedTuple):
    """The contents of one read request: its sources, and by label what answers are checked against."""

    sources: tuple[RequestSource, ...]
    materials: Mapping[str, Material]

    @property
    def sessions(self) -> frozenset[str]:
        return frozenset(one.session for one in self.materials.values())


class Judged(NamedTuple):
    """An item that may be kept. `shelf`: active or suggested. `why`: what the challenge said."""

    item: Item
    shelf: str
    why: str


class ReadingProgress(NamedTuple):
    """`needed`: what is still to be asked; empty at the end. `unreadable`: by request id, why its answer can't be used."""

    needed: tuple[Request, ...]
    judged: tuple[Judged, ...]
    dropped: Counter[str]
    unreadable: Mapping[str, str]


# -- batches


def make_batches(sessions: Sequence[SessionText], *, part_tokens: int = PART_TOKENS) -> list[ReadBatch]:
    """Small sessions of a project share a request; a session that is too large is split where the user typed something."""
    small: list[tuple[SessionText, tuple[DigestLine, ...], int]] = []
    found: list[ReadBatch] = []
    words = {session.id: ToolWords(given_of(session.messages)) for session in sessions}  # computed when first needed
    for session in sessions:
        lines = tuple(digest(session.messages, session.cwd, session.heard.__contains__))
        if not _has_news(session, lines):
            continue
        size = sum(map(_count_tokens, lines))
        if size <= SHARED_TOKENS // 2 and len(sessions) > 1:
            small.append((session, lines, size))
        else:
            found += [
                _make_batch([(session, part)], words)
                for part in _split_at_prompts(lines, part_tokens)
                if _has_news(session, part)
            ]
    return [*found, *(_make_batch([(session, lines) for session, lines, _ in group], words) for group in _group_small(small))]


def _has_news(session: SessionText, lines: Iterable[DigestLine]) -> bool:
    """Whether a line of the user's was not read before."""
    return any(line.role == "user" and not session.knows(line.seq) for line in lines)


def _count_tokens(line: DigestLine) -> int:
    return estimate(line.text) + 8


def _split_at_prompts(lines: tuple[DigestLine, ...], most: int) -> Iterator[tuple[DigestLine, ...]]:
    """A part begins with what the user typed; where nothing was typed for long, anywhere."""
    part: list[DigestLine] = []
    size = 0
    for line in lines:
        if part and size + _count_tokens(line) > most:
            cut = max((n for n, one in enumerate(part) if one.origin in OWN_WORDS and n), default=len(part))
            yield tuple(part[:cut])
            part = part[cut:]
            size = sum(map(_count_tokens, part))
        part.append(line)
        size += _count_tokens(line)
    if part:
        yield tuple(part)


def _group_small(
    small: Iterable[tuple[SessionText, tuple[DigestLine, ...], int]],
) -> Iterator[list[tuple[SessionText, tuple[DigestLine, ...], int]]]:
    """Groups of small sessions of the same project, in order."""
    open_: dict[str, list[tuple[SessionText, tuple[DigestLine, ...], int]]] = {}
    for one in small:
        group = open_.setdefault(one[0].project, [])
        if group and (sum(size for _, _, size in group) + one[2] > SHARED_TOKENS or len(group) >= MOST_SHARED):
            yield group
            group = open_[one[0].project] = []
        group.append(one)
    yield from (group for group in open_.values() if group)


def _make_batch(parts: Sequence[tuple[SessionText, tuple[DigestLine, ...]]], tool_words: Mapping[str, ToolWords]) -> ReadBatch:
    sources: list[RequestSource] = []
    materials: dict[str, Material] = {}
    for n, (session, lines) in enumerate(parts):
        label = ascii_uppercase[n] if len(parts) > 1 else ""
        known = frozenset(line.seq for line in lines if session.knows(line.seq))
        project = redact(session.project)[0]  # a folder may be named after a key
        sources.append(RequestSource(session.agent, project, session.title, lines, label, known, session.tasks))
        shown = {line.seq for line in lines}
        messages = [one for one in session.messages if place_of(one) in shown]
        tasks = [id for id, _ in session.tasks]
        beside = (session.title, session.project, session.cwd)
        words = tool_words[session.id]
        materials[label] = Material(session.id, lines, messages, known=known, tasks=tasks, beside=beside, tool_words=words)
    return ReadBatch(tuple(sources), materials)


# -- questions and answers


def advance(batch: ReadBatch, answers: Mapping[str, ModelReply]) -> ReadingProgress:
    """What to ask next about this batch, or its results."""
    asked = read_request(batch.sources)
    if asked.id not in answers:
        return ReadingProgress((asked,), (), Counter(), {})
    try:
        items = read_items(answers[asked.id].found, batch.materials, cut=answers[asked.id].cut)
    except UnreadableAnswer as problem:
        return ReadingProgress((asked,), (), Counter(), {asked.id: str(problem)})
    dropped = Counter(items.dropped)
    if answers[asked.id].cut:
        if not items.found and not dropped:
            # An answer that was cut off doesn't say that there is nothing to find.
            return ReadingProgress((asked,), (), Counter(), {asked.id: "the answer was cut off before its first item"})
        dropped["the answer was cut off"] += 1
    return _challenge(batch, items.found, dropped, answers)


def _challenge(
    batch: ReadBatch, items: Sequence[Item], dropped: Counter[str], answers: Mapping[str, ModelReply]
) -> ReadingProgress:
    by_session = {material.session: material for material in batch.materials.values()}
    needed: list[Request] = []
    judged: list[Judged] = []
    unreadable: dict[str, str] = {}
    for start in range(0, len(items), _CHALLENGED_AT_ONCE):
        some = [item for _, of in _group_by_session(items[start : start + _CHALLENGED_AT_ONCE]) for item in of]
        asked = challenge_request([_make_excerpt(of, by_session[session]) for session, of in _group_by_session(some)])
        reply = answers.get(asked.id)
        try:
            verdicts = read_verdicts(reply.found, len(some), cut=reply.cut) if reply else None
        except UnreadableAnswer as problem:
            verdicts, unreadable[asked.id] = None, str(problem)
        if verdicts is None:
            needed.append(asked)
            continue
        for item, verdict in zip(some, verdicts, strict=True):
            made = classify(item, verdict, by_session[item.session])
            if isinstance(made, str):
                dropped[made] += 1
            else:
                judged.append(made)
    return ReadingProgress(tuple(needed), tuple(judged), dropped, unreadable)


def classify(item: Item, verdict: Verdict | None, material: Material) -> Judged | str:
    """Where an item belongs, or why it is dropped. Without a verdict it is only a suggestion."""
    if verdict is None:
        return Judged(item, SUGGESTED, "it was not challenged")
    if verdict.verdict == DROP:
        return "dropped by the challenge"
    if verdict.note and verdict.note != item.note:
        better = reworded(item, verdict.note, material)
        if isinstance(better, str):
            return f"reworded by the challenge, with {better}"
        item = better
    return Judged(item, ACTIVE if item.is_active(verdict.verdict) else SUGGESTED, verdict.why)


def _group_by_session(items: Iterable[Item]) -> list[tuple[str, list[Item]]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.session, []).append(item)
    return list(found.items())


def _make_excerpt(items: Sequence[Item], material: Material) -> Excerpt:
    """The lines around the evidence, and shortened all that the user typed: a later line may have taken an item back."""
    quoted = {one.place for item in items for one in item.quotes}
    near = set(material.around(quoted, _AROUND))
    lines = []
    for line in material.lines:
        if line.seq in quoted:
            lines.append(_shorten(line, _QUOTED_TEXT))
        elif line in near:
            lines.append(_shorten(line, _AROUND_TEXT))
        elif line.origin in OWN_WORDS:
            lines.append(_shorten(line, _LATER_TEXT))
    doubts = tuple(Doubt(item.kind, item.note, tuple(dict.fromkeys(one.place for one in item.quotes))) for item in items)
    return Excerpt(tuple(lines), doubts)


def _shorten(line: DigestLine, most: int) -> DigestLine:
    return line._replace(text=fold(line.text, most // 2, most // 2))
