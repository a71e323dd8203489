"""A talk: a session's messages in a form that fits every agent's format. A writer turns it into the agent's own bytes. Pure.

    messages of any agent ─► recovery/restore/convert.py ─► Talk(steps) ─► writer.py of an agent ─► its own bytes

Every talk keeps to the rules that all models' interfaces share:
* a call has an id and a name of letters, digits, `_` and `-`, an object as its input, and exactly one result, right after the
  calls that were made together with it; a call without a result gets a note in its place;
* words hold no lone surrogates, and no message is empty;
* times only grow, because a reader takes equal words at an equal time for one message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from dreamkeep.host import Host

#: A step's kind.
USER, ASSISTANT, REASONING, CALL, RESULT, SUMMARY = "user", "assistant", "reasoning", "call", "result", "summary"

#: In place of a missing result.
NO_RESULT = "[no result was recorded]"
#: What some formats can't hold; a key of a Losses.
FAILED = "failure marks of tools whose output doesn't mention a failure"
_LONE = re.compile("[\ud800-\udfff]")


class TalkStep(NamedTuple):
    """`at` is always there. `id`, `name`, `input` of a call; `id`, `name`, `failed` of its result."""

    kind: str
    text: str
    at: str
    id: str = ""
    name: str = ""
    input: Mapping[str, Any] = {}
    failed: bool = False


class Talk(NamedTuple):
    """`session` is our own id. `title` is "" if the first prompt says the same; `heading` is how that prompt begins."""

    session: str
    cwd: str
    title: str
    model: str
    branch: str
    started_at: str
    steps: tuple[TalkStep, ...]
    heading: str = ""


Losses = Counter[str]


class WrittenFile(NamedTuple):
    """A file below the agent's place, and what its format could not hold."""

    path: str
    data: bytes
    native: str
    lost: Losses


#: Roles of files beside sessions, without which an agent would not find a session.
MARKER, INDEX = "marker", "index"

#: A file's bytes; may be called more than once.
Pieces = Callable[[], Iterable[bytes]]
Row = Mapping[str, Any]


class RestoredFile(NamedTuple):
    """A file to write. `session`: our id of it. `about`: its role, and more to report about it."""

    path: str
    pieces: Pieces
    exact: bool
    session: str
    about: Mapping[str, Any]
    #: What it was made from, and may replace.
    made_from: bytes | None = None


class Conversion(NamedTuple):
    """A talk in an agent's format: files, or rows for a database (by table). `native`: the agent's own id of it."""

    native: str
    lost: Losses
    files: tuple[RestoredFile, ...] = ()
    database: str = ""
    rows: Mapping[str, tuple[Row, ...]] = {}


class TalkWriter(Protocol):
    """What `writer.py` of an agent's folder offers."""

    def convert(self, host: Host, place: str, talk: Talk) -> Conversion:
        """The talk as a new session of this agent, in one of its places. It may look there, and writes nothing."""

    def beside(self, host: Host, files: list[RestoredFile], cwd: str, moved: bool) -> list[RestoredFile]:
        """These files, which go back byte for byte, and what else the agent needs to find them. `moved`: to another home."""

    def usual_path(self, native: str, cwd: str, started_at: str) -> str:
        """Where the agent would put this session's transcript, below its place; "" if unknown."""


def converted(place: str, talk: Talk, written: WrittenFile) -> Conversion:
    """The conversion of a writer that makes one file."""
    file = RestoredFile(f"{place}/{written.path}", lambda: [written.data], False, talk.session, {"role": "main"})
    return Conversion(written.native, written.lost, (file,))


def clean(text: str) -> str:
    return _LONE.sub("\ufffd", text)


# -- times


def moment(at: str) -> datetime:
    return datetime.fromisoformat(at)


def seconds(at: str) -> float:
    return moment(at).timestamp()


def to_ms(at: str) -> str:
    """As JavaScript writes it."""
    return f"{at[:23]}Z"


# -- ids of our own: the same session always gets the same ids


def chance(*names: object) -> bytes:
    return sha256("\0".join(map(str, names)).encode("utf-8", "surrogatepass")).digest()


def uuid4(*names: object) -> str:
    return _uuid(chance(*names)[:16], 4)


def uuid7(at: str, *names: object) -> str:
    """With the time in it, as clients sort by it."""
    ms = max(0, int(seconds(at) * 1000)) & (1 << 48) - 1
    return _uuid(ms.to_bytes(6, "big") + chance(*names)[:10], 7)


def _uuid(raw: bytes, version: int) -> str:
    digits = bytearray(raw)
    digits[6] = digits[6] & 0x0F | version << 4
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# -- grouped, for formats whose message holds thoughts, words and calls together


class ModelMessage(NamedTuple):
    """One message of the model: thoughts, then words, then calls with their results."""

    at: str
    thoughts: tuple[TalkStep, ...]
    words: TalkStep | None
    calls: tuple[tuple[TalkStep, TalkStep], ...]
    #: Whether the user speaks next (or nobody does): then these words are an answer.
    last: bool


class _MessageSteps:
    """The steps of one message of the model, as far as they have come."""

    def __init__(self) -> None:
        self.thoughts: list[TalkStep] = []
        self.words: TalkStep | None = None
        self.calls: list[tuple[TalkStep, TalkStep]] = []
        #: A result was seen.
        self.answered = False

    def is_ended_by(self, step: TalkStep) -> bool:
        if step.kind == CALL:
            return self.answered  # the model had seen results before it made this call
        return bool(self.words or self.calls)

    def add(self, step: TalkStep, results: Mapping[str, TalkStep]) -> None:
        if step.kind == CALL:
            self.calls.append((step, results[step.id]))
        elif step.kind == ASSISTANT:
            self.words = step
        else:
            self.thoughts.append(step)

    def message(self, *, last: bool) -> Iterator[ModelMessage]:
        first = self.thoughts[0] if self.thoughts else self.words or (self.calls[0][0] if self.calls else None)
        if first:
            yield ModelMessage(first.at, tuple(self.thoughts), self.words, tuple(self.calls), last)


def grouped(steps: Iterable[TalkStep]) -> Iterator[TalkStep | ModelMessage]:
    """Prompts and summaries as they are; everything else joined to whole messages."""
    steps = list(steps)
    results = {step.id: step for step in steps if step.kind == RESULT}
    begun = _MessageSteps()
    for step in steps:
        if step.kind == RESULT:
            begun.answered = True
            continue
        is_prompt = step.kind in (USER, SUMMARY)
        if is_prompt or begun.is_ended_by(step):
            yield from begun.message(last=is_prompt)
            begun = _MessageSteps()
        if is_prompt:
            yield step
        else:
            begun.add(step, results)
    yield from begun.message(last=True)
