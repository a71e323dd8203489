"""What an agent's raw record says, in our words. A format's reader turns records into facts; the folds turn facts into views.

    raw record ─► reader (agents/<name>/reader.py) ─► facts ─► folds (turns, messages, segments, lineage) ─► rows

Facts are plain and frozen. Identity is a `key`: the agent's own id of a thing, or a hash of its content; never a position,
because agents append again, insert again under new row numbers, and rewrite. The same key again is the same thing, perhaps in a
newer version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Roles. `tool` is a tool's result; a call is an `assistant` message with `tool`. `summary`: what a compaction made of the talk.
USER, ASSISTANT, TOOL, SYSTEM, REASONING, SUMMARY = "user", "assistant", "tool", "system", "reasoning", "summary"

#: Before a file's name: the key of the message with which the text of that file begins.
WHOLE = "whole:"

#: How a pack of ours begins, wherever an agent puts it.
PACK = "<!-- dreamkeep:pack"

#: Marks: not the words of user or model, though they look like it.
SYNTHETIC = "synthetic"  # the client wrote it itself, for instance after a crash
HOOK = "hook"  # what a hook said
INJECTED = "injected"  # our own pack, or other memory handed in: never to be learned again
META = "meta"  # the client's own talk to the model: environment, reminders, caveats
COPIED = "copied"  # a fork's copy of what its parent holds
REWOUND = "rewound"  # taken back by the user
PARTIAL = "partial"  # the agent was stopped in the middle of saying it
COMPACTED = "compacted"  # repeated for the model's sake by a compaction


#: Not a column of a row: what capture saw of it in other rows (shared/database.py).
BESIDE = "$beside"


class Record(NamedTuple):
    """One raw record as a reader gets it.

    `data` is the parsed object; None when the bytes are no JSON object, which then are in `text`. `channel` says how it came:
    "file" (a transcript's line), "row" (a database's row: `table`, and `data` is the row), "piece" (a piece of a document that is
    rewritten whole, as `text`), "text" (a stretch of a file that is no records, as `text`; `name` is the file's, and behind a
    slash which stretch, if not the first), "hook" (a hook's payload, `name` is the event as the agent calls it), "acp" (a frame
    of the tap; `name` is "client" for client → agent, "agent" for agent → client), "stderr" (a line of the agent's stderr, as
    `text`), "items" (what a framework handed over: `name` is the event's kind, `source` its id).
    `source` says which of a session's files ("main", "subagent", "turns", "backup"…). `at` is when it was captured, RFC 3339.
    """

    channel: str
    data: Mapping[str, Any] | None = None
    text: str = ""
    name: str = ""
    source: str = "main"
    at: str = ""


class MessageSaid(NamedTuple):
    """A message. Of several with one key the last is the message, in the place of the first.

    `tool`: for a call `{"id","name","input"}`, for a result `{"id", "name"?, "error"?: bool, "exit_code"?: int}`; output is text.
    `turn`: the turn it belongs to, if the record names it; "": the turn that is going on.
    `record`: the id of the record it is a part of, where that is not its key and a rewind may name it.
    `file`: the name of the file beside the transcript that holds all of the text: this may be a preview of it, or is out of it.
    """

    role: str
    text: str
    key: str
    at: str | None = None
    turn: str = ""
    tool: Mapping[str, Any] | None = None
    mark: str = ""
    record: str = ""
    file: str = ""


class TurnBegan(NamedTuple):
    """A turn began. `key`: the key of the message that is its prompt, if there is one; it comes in a `MessageSaid` of its own."""

    turn: str
    prompt: str
    at: str | None = None
    key: str = ""


class TurnSettled(NamedTuple):
    """How a turn ended, by what the record says: completed, failed, cancelled, interrupted. `turn` "": the one going on.

    `started` takes a "completed" back: what looked like the last word was not.
    """

    turn: str
    state: str
    at: str | None = None
    reason: str | None = None


class MessagesRewound(NamedTuple):
    """The user took something back: everything from the message (or record) `key` on; where that is not known, the last `turns`
    turns, or everything (`all`). It stays here, marked. `only`: this one message, and not what is behind it.

    `by`: the message that shows it; if that was said before, this is told again, and nothing new is taken back.
    """

    at: str | None = None
    key: str = ""
    turns: int = 0
    all: bool = False
    only: bool = False
    by: str = ""


class MessagesRestored(NamedTuple):
    """What was taken back from the message `key` on counts again (a redo)."""

    at: str | None = None
    key: str = ""


class Signal(NamedTuple):
    """Somebody says something of a compaction.

    `source`: "structured" (the agent's protocol), "transcript" (its records), "hook", "scraped" (a log line).
    `phase`: "started", "progress" (a heartbeat), "completed", "failed", "cancelled", "noop".
    `id`: the compaction's own identity where the signal has one ("" where not). `scope`: the native session id that the signal is
    about, after the compaction where it changes ("" = this session); `old_scope`: the one before. `depth`: how many compactions
    this session has behind it by the agent's own count. `before`/`after`: {"messages": n, "tokens": n}, what is known of them.
    `reason`: manual, auto, …
    `historic`: told again, of what happened before (a replay): never a change of the current segment.
    """

    source: str
    phase: str
    at: str | None = None
    id: str = ""
    scope: str = ""
    old_scope: str = ""
    depth: int | None = None
    reason: str = ""
    before: Mapping[str, int] | None = None
    after: Mapping[str, int] | None = None
    turn: str = ""
    historic: bool = False
    error: str = ""


class Boundary(NamedTuple):
    """The context changed without a compaction: load, reset, clear, rewind, rollover."""

    reason: str
    at: str | None = None
    id: str = ""


class Owner(NamedTuple):
    """Who runs the agent: `name` is the lock that proves it lives (empty: nobody says); `alive` False: journaled as dead."""

    name: str
    alive: bool
    at: str | None = None
    reason: str = ""


class Edge(NamedTuple):
    """Lineage: this session is a `kind` (subagent, fork, continuation, resume) of `session` (a native id of the same agent).

    `through`: the key of the last record that was copied from there; all up to it count there, not here.
    """

    kind: str
    session: str
    evidence: str
    at: str | None = None
    through: str = ""


class SessionTitled(NamedTuple):
    """`rank`: 1 made by a model, 2 given by the user; the first prompt, rank 0, needs no fact. Higher wins, then later."""

    title: str
    rank: int = 1


class SessionPlaced(NamedTuple):
    """Where and with what the session runs; what is "" was not said."""

    cwd: str = ""
    branch: str = ""
    model: str = ""
    version: str = ""
    #: The address of the folder's git remote.
    remote: str = ""


class SessionClosed(NamedTuple):
    """The agent says that the session is over (it may still be resumed)."""

    at: str | None = None
    reason: str = ""


class UnknownRecord(NamedTuple):
    """A record of a kind that the reader does not know: kept raw, shown as such."""

    kind: str


class OddRecord(NamedTuple):
    """Something is wrong with a record: torn, NULs, a missing or reused ordinal. Kept raw, readable around."""

    kind: str
    what: str


Fact = (
    MessageSaid
    | TurnBegan
    | TurnSettled
    | MessagesRewound
    | MessagesRestored
    | Signal
    | Boundary
    | Owner
    | Edge
    | SessionTitled
    | SessionPlaced
    | SessionClosed
    | UnknownRecord
    | OddRecord
)
