"""The form of a written session, and what must be true of one. `series/NN-name.json`, `singles/name.json`:

    agent, session, cwd, started_at, title?    as the agent would have it; story: one line, what it tests
    turns     [{"user", "at"?, "steps": […], "end"?: completed | interrupted | crashed}]
    expect    what should be learned: {"types": [any of these counts], "all": […], "any"?: […], "not"?: […], "quote",
              "supersedes"?, "scope": project | session, "fact"?: the same name wherever the same fact is told again}
    optional  the same form: may be learned; neither wanted nor punished
    decoys    texts in the session from which nothing may be learned (of a failed command a fix may cite its output)

What meets an expectation, or an optional one, is right. What meets none is wrong, decoy or not: so a session lists as optional
what a careful reader might keep besides. One note may meet several.

A term of `all`, `any`, `not` is a word or words of the note's text, in whatever case, or a pattern between slashes. A step is
one of the classes below; what it is called in the file stands in `STEPS`. into/ makes the transcript that the agent would have
written of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Sessions that follow each other in a few projects; how such a set must be made, tests/test_planted.py says.
SERIES = Path(__file__).parent / "series"
#: One session in each project.
SINGLES = Path(__file__).parent / "singles"
#: The bundled sample, see sample.py. What it expects is what a newcomer must see.
WEEK = Path(__file__).parent / "week"
AGENTS = ("claude", "codex", "gemini", "hermes", "opencode", "python")
TYPES = frozenset(
    (
        "decision",
        "rejection",
        "finding",
        "evidence",
        "constraint",
        "correction",
        "preference",
        "hypothesis",
        "procedure",
        "failure_fix",
        "open_loop",
    )
)
PACK = "<!-- dreamkeep:pack v1 -->"


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Think:
    text: str


@dataclass(frozen=True)
class Run:
    command: str
    output: str
    exit: int


@dataclass(frozen=True)
class Edit:
    path: str
    diff: str

    @property
    def old(self) -> str:
        return self._side("-")

    @property
    def new(self) -> str:
        return self._side("+")

    def _side(self, sign: str) -> str:
        return "\n".join(line[1:] for line in self.diff.splitlines() if line.startswith(sign))


@dataclass(frozen=True)
class Read:
    path: str
    output: str


@dataclass(frozen=True)
class Tool:
    name: str
    input: Mapping[str, Any]
    output: str
    error: bool


@dataclass(frozen=True)
class Rejected:
    """A tool call that the user did not allow; `said`: why, if he said so."""

    tool: str
    input: Mapping[str, Any]
    said: str


@dataclass(frozen=True)
class Plan:
    text: str
    approved: bool
    said: str


@dataclass(frozen=True)
class Ask:
    question: str
    options: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Todo:
    """(text, status) each."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Subagent:
    """`task`: what it is told to do; its last words are what the session gets."""

    task: str
    steps: tuple[Step, ...]

    @property
    def result(self) -> str:
        return next((one.text for one in reversed(self.steps) if isinstance(one, Say)), "")


@dataclass(frozen=True)
class Compaction:
    summary: str


@dataclass(frozen=True)
class Pack:
    text: str


Step = Say | Think | Run | Edit | Read | Tool | Rejected | Plan | Ask | Todo | Subagent | Compaction | Pack

#: What no transcript of that agent has a form for.
LACKS: Mapping[str, tuple[type[Step], ...]] = {
    "codex": (Plan,),
    "gemini": (Plan,),
    "hermes": (Plan, Pack),
    "opencode": (Plan, Pack),
    "python": (Plan, Ask, Subagent),
}
#: Who can say why he rejects a tool call in the same breath.
SAYS_WHY = ("claude", "opencode", "python")


@dataclass(frozen=True)
class Turn:
    prompt: str
    at: datetime | None
    steps: tuple[Step, ...]
    end: str


@dataclass(frozen=True)
class Wanted:
    types: frozenset[str]
    all: tuple[str, ...]
    any: tuple[str, ...]
    never: tuple[str, ...]
    quote: str
    scope: str
    supersedes: str = ""
    fact: str = ""

    def is_met_by(self, kind: str, text: str) -> bool:
        return kind in self.types and self.speaks_of(text)

    def speaks_of(self, text: str) -> bool:
        return (
            all(_holds(text, term) for term in self.all)
            and (not self.any or any(_holds(text, term) for term in self.any))
            and not any(_holds(text, term) for term in self.never)
        )


@dataclass(frozen=True)
class Written:
    name: str
    agent: str
    session: str
    cwd: str
    started_at: datetime
    title: str
    story: str
    turns: tuple[Turn, ...]
    expect: tuple[Wanted, ...]
    optional: tuple[Wanted, ...]
    decoys: tuple[str, ...]
    #: Members of the file that nobody reads: a slip of the pen.
    strange: tuple[str, ...] = field(default=())

    @property
    def id(self) -> str:
        return f"{self.agent}:{self.session}"

    def steps(self) -> Iterator[Step]:
        for turn in self.turns:
            yield from turn.steps


def _holds(text: str, term: str) -> bool:
    if len(term) > 2 and term.startswith("/") and term.endswith("/"):
        return re.search(term[1:-1], text, re.IGNORECASE) is not None
    return term.lower() in text.lower()


# -- from the file


def load(folder: Path = SERIES) -> list[Written]:
    return [_written(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def _written(name: str, raw: Mapping[str, Any]) -> Written:
    known = {"agent", "session", "cwd", "started_at", "title", "story", "turns", "expect", "optional", "decoys"}
    return Written(
        name=name,
        agent=raw["agent"],
        session=raw["session"],
        cwd=raw["cwd"],
        started_at=_moment(raw["started_at"]),
        title=raw.get("title", ""),
        story=raw["story"],
        turns=tuple(_turn(one) for one in raw["turns"]),
        expect=tuple(_wanted(one) for one in raw["expect"]),
        optional=tuple(_wanted(one) for one in raw.get("optional", ())),
        decoys=tuple(raw["decoys"]),
        strange=tuple(sorted(set(raw) - known)),
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _turn(raw: Mapping[str, Any]) -> Turn:
    at = _moment(raw["at"]) if "at" in raw else None
    return Turn(raw["user"], at, tuple(_step(one) for one in raw["steps"]), raw.get("end", "completed"))


def _wanted(raw: Mapping[str, Any]) -> Wanted:
    more = {key: raw[key] for key in ("supersedes", "fact") if key in raw}
    every, some, never = (tuple(raw.get(key, ())) for key in ("all", "any", "not"))
    return Wanted(frozenset(raw["types"]), every, some, never, raw["quote"], raw.get("scope", "project"), **more)


def _step(raw: Mapping[str, Any]) -> Step:
    [kind] = [key for key in STEPS if key in raw] or [""]
    if not kind:
        raise ValueError(f"no such step: {sorted(raw)}")
    return STEPS[kind](raw)


STEPS: Mapping[str, Callable[[Mapping[str, Any]], Step]] = {
    "say": lambda raw: Say(raw["say"]),
    "think": lambda raw: Think(raw["think"]),
    "run": lambda raw: Run(raw["run"], raw.get("output", ""), raw.get("exit", 0)),
    "edit": lambda raw: Edit(raw["edit"], raw.get("diff", "")),
    "read": lambda raw: Read(raw["read"], raw.get("output", "")),
    "tool": lambda raw: Tool(raw["tool"], raw.get("input", {}), raw.get("output", ""), raw.get("error", False)),
    "rejected": lambda raw: Rejected(raw["rejected"]["tool"], raw["rejected"]["input"], raw["rejected"].get("user_said", "")),
    "plan": lambda raw: Plan(raw["plan"], raw["approved"], raw.get("user_said", "")),
    "ask": lambda raw: Ask(raw["ask"], tuple(raw["options"]), raw["answer"]),
    "todo": lambda raw: Todo(tuple((one["text"], one["status"]) for one in raw["todo"])),
    "subagent": lambda raw: Subagent(raw.get("task", "Look into it."), tuple(_step(one) for one in raw["subagent"])),
    "compaction": lambda raw: Compaction(raw["compaction"]),
    "pack": lambda raw: Pack(raw["pack"]),
}


# -- what is said in it


def strings(value: object) -> Iterator[str]:
    """Every text inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from strings(one)


def texts(step: Step) -> Iterator[str]:
    match step:
        case Say(text) | Think(text) | Pack(text) | Compaction(text):
            yield text
        case Run(command, output, _):
            yield from (command, output)
        case Edit(path, _):
            yield from (path, step.old, step.new)
        case Read(path, output):
            yield from (path, *output.splitlines())
        case Tool(_, given, output, _):
            yield from (*strings(given), output)
        case Rejected(_, given, said):
            yield from (*strings(given), said)
        case Plan(text, _, said):
            yield from (text, said)
        case Ask(question, options, answer):
            yield from (question, *options, answer)
        case Todo(entries):
            yield from (text for text, _ in entries)
        case Subagent(task, steps):
            yield task
            for one in steps:
                yield from texts(one)


def _of_turn(turn: Turn) -> list[str]:
    return [turn.prompt, *(text for step in turn.steps for text in texts(step))]


def _trusted(turn: Turn) -> list[str]:
    """What an insight may rest on: neither a summary nor a pack nor a subagent's talk."""
    steps = (one for one in turn.steps if not isinstance(one, (Compaction, Pack, Subagent)))
    return [turn.prompt, *(text for step in steps for text in texts(step))]


# -- what must be true


def wrong_with(session: Written) -> list[str]:
    found = [f"nobody reads {key!r}" for key in session.strange]
    if session.agent not in AGENTS:
        found.append(f"no such agent: {session.agent}")
    for turn in session.turns:
        found += _wrong_turn(session, turn)
    for one in (*session.expect, *session.optional):
        found += _wrong_wanted(session, one)
    whole = [text for turn in session.turns for text in _of_turn(turn)]
    for decoy in session.decoys:
        if not any(decoy in text for text in whole):
            found.append(f"the decoy is not in the session: {decoy!r}")
        crossed = [one.quote for one in session.expect if decoy in one.quote or one.quote in decoy]
        found += [f"{quote!r} is wanted and a decoy" for quote in crossed]
    found += [f"a decoy twice: {decoy!r}" for decoy, times in Counter(session.decoys).items() if times > 1]
    return found


def _wrong_turn(session: Written, turn: Turn) -> Iterator[str]:
    last = turn.steps[-1] if turn.steps else None
    if turn.end == "completed" and not isinstance(last, Say):
        yield f"a completed turn ends with the agent's words: {turn.prompt[:60]!r}"
    if turn.end == "crashed" and session.agent != "claude":
        yield "only Claude writes a line of its own after a crash"
    for step in turn.steps:
        if isinstance(step, LACKS.get(session.agent, ())):
            yield f"{session.agent} has no form for {type(step).__name__}"
        if isinstance(step, Pack) and PACK not in step.text:
            yield "a pack without its mark"
        if isinstance(step, Rejected) or (isinstance(step, Plan) and not step.approved):
            yield from _wrong_rejection(session, turn, step)


def _wrong_rejection(session: Written, turn: Turn, step: Rejected | Plan) -> Iterator[str]:
    if step.said and session.agent not in SAYS_WHY:
        yield f"{session.agent} has no place for why a call was rejected"
    ends = step is turn.steps[-1] and turn.end == "interrupted"
    if not step.said and session.agent != "hermes" and not ends:
        yield f"a rejection without a reason interrupts the turn: {turn.prompt[:60]!r}"


def _wrong_wanted(session: Written, wanted: Wanted) -> Iterator[str]:
    if not wanted.types or not wanted.types <= TYPES:
        yield f"types {sorted(wanted.types)} of {wanted.quote!r}"
    if wanted.scope not in ("project", "session"):
        yield f"scope {wanted.scope!r}"
    if not wanted.all and not wanted.any:
        yield f"any note would meet {wanted.quote!r}"
    places = [turn for turn in session.turns if any(wanted.quote in text for text in _trusted(turn))]
    if not places:
        yield f"the quote is not in the session: {wanted.quote!r}"
    # A note made of what was said around the quote must be able to meet it (what is optional may take more into account).
    elif (
        wanted in session.expect
        and not wanted.speaks_of("\n".join(text for turn in places for text in _trusted(turn)))
        and not wanted.never
    ):
        yield f"{wanted.all} {wanted.any} are not said where {wanted.quote!r} is"


def wrong_together(sessions: Iterable[Written]) -> list[str]:
    sessions = list(sessions)
    ids = Counter(one.session for one in sessions)
    found = [f"two sessions are {name}" for name, times in ids.items() if times > 1]
    for session in sessions:
        of_project = [one for one in sessions if one.cwd == session.cwd and one.started_at <= session.started_at]
        said = [text for one in of_project for turn in one.turns for text in _of_turn(turn)]
        lost = (one.supersedes for one in session.expect if not any(one.supersedes in text for text in said))
        found += [f"{session.name}: nobody said before what is superseded: {words!r}" for words in lost]
    return found
