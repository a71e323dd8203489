"""What an agent's raw record says, in our words. An agent's reader turns records into facts; the folds turn facts into views.

    raw record ─► reader (agents/<name>/reader.py) ─► facts ─► folds (turns, messages, segments, lineage) ─► rows

Facts are plain and frozen. A `key` is the agent's own id of a thing, or a hash of its content. It is never a position, because
agents append again, insert again under new row numbers, and rewrite. The same key is the same thing, perhaps in a newer version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Roles. `tool` is a tool's result; a call is an `assistant` message with `tool`. `summary` is what a compaction wrote.
USER, ASSISTANT, TOOL, SYSTEM, REASONING, SUMMARY = "user", "assistant", "tool", "system", "reasoning", "summary"

#: Followed by a file's name: the key of the message that holds the beginning of that file.
WHOLE = "whole:"

#: How one of our packs begins, wherever an agent puts it.
PACK = "<!-- dreamkeep:pack"

#: Marks: words that look like the user's or the model's, and are not.
SYNTHETIC = "synthetic"  # the client wrote it itself, for instance after a crash
HOOK = "hook"  # the output of a hook
INJECTED = "injected"  # our own pack, or other memory: never to be learned again
META = "meta"  # the client's own words to the model: environment, reminders, caveats
COPIED = "copied"  # a fork's copy of its parent's messages
REWOUND = "rewound"  # taken back by the user
PARTIAL = "partial"  # the agent was stopped in the middle of it
COMPACTED = "compacted"  # repeated for the model by a compaction

#: Not a column of a row: what capture saw of it in other rows (shared/database.py).
BESIDE = "$beside"


class Record(NamedTuple):
    """One raw record, as a reader gets it.

    `data` is the parsed object; None when the bytes are no JSON object, which then are in `text`.
    `channel` says how it came:

        file      a transcript's line
        row       a database's row, in `data`; `name` is its table
        piece     a piece, in `text`, of a document that is rewritten whole
        text      a stretch, in `text`, of a file without records; `name` is the file, and `file/stretch` after the first
        hook      a hook's payload; `name` is the event, as the agent calls it
        acp       a frame of the tap; `name` is who sent it: "client" or "agent"
        stderr    a line, in `text`, of the agent's stderr
        items     handed over by a framework; `name` is the event's kind, `source` its id

    `source` says which of a session's files it is from ("main", "subagent", "turns", "backup" …). `at` is when it was captured.
    """

    channel: str
    data: Mapping[str, Any] | None = None
    text: str = ""
    name: str = ""
    source: str = "main"
    at: str = ""


class MessageSaid(NamedTuple):
    """A message. If several have one key, the last is the message, in the place of the first.

    `tool`: for a call `{"id","name","input"}`, for a result `{"id", "name"?, "error"?: bool, "exit_code"?: int}`; the output is
    `text`. `turn`: its turn, if the record names it; "" for the current one. `record`: the id of the record it is part of, if
    that is not its key and a rewind may name it. `file`: the file beside the transcript that has the whole text. Then this
    message is a preview of it, or a part.
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
    """A turn began. `key`: the key of the message that is its prompt, if there is one. That message is a fact of its own."""

    turn: str
    prompt: str
    at: str | None = None
    key: str = ""


class TurnSettled(NamedTuple):
    """How a turn ended, by the record: completed, failed, cancelled, interrupted. `turn` "": the current one.

    `started` withdraws a "completed": what looked like the last answer was not.
    """

    turn: str
    state: str
    at: str | None = None
    reason: str | None = None


class MessagesRewound(NamedTuple):
    """The user took messages back. They stay here, marked.

    Either all from the message (or record) `key` on; or, if that is unknown, the last `turns` turns, or `all`. `only`: just this
    one message. `by`: the message that shows it; if that message is known already, nothing new is taken back.
    """

    at: str | None = None
    key: str = ""
    turns: int = 0
    all: bool = False
    only: bool = False
    by: str = ""


class MessagesRestored(NamedTuple):
    """The messages that were taken back from `key` on count again (a redo)."""

    at: str | None = None
    key: str = ""


class Signal(NamedTuple):
    """Something was said about a compaction.

    `source`: "structured" (the agent's protocol), "transcript" (its records), "hook", "scraped" (a log line).
    `phase`: "started", "progress" (a heartbeat), "completed", "failed", "cancelled", "noop".
    `id`: the compaction's own id, if the signal has one. `scope`: the native session id that the signal is about, after the
    compaction if that changes it ("" = this session); `old_scope`: the one before. `depth`: how often the session was compacted,
    by the agent's own count. `before`/`after`: {"messages": n, "tokens": n}, as far as known. `reason`: manual, auto …
    `historic`: repeated from before (a replay): it never changes the current segment.
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
    """Who runs the agent. `name`: the lock that proves it lives ("" if unknown). `alive` False: journaled as dead."""

    name: str
    alive: bool
    at: str | None = None
    reason: str = ""


class Edge(NamedTuple):
    """Lineage: this session is a `kind` (subagent, fork, continuation, resume) of `session` (a native id of the same agent).

    `through`: the key of the last record that was copied from there. All up to it count there, not here.
    """

    kind: str
    session: str
    evidence: str
    at: str | None = None
    through: str = ""


class SessionTitled(NamedTuple):
    """The session's title. `rank`: 1 written by a model, 2 by the user; the first prompt, rank 0, needs no fact. The highest rank
    wins, then the latest."""

    title: str
    rank: int = 1


class SessionPlaced(NamedTuple):
    """Where and with what the session runs. "" means that the record does not say."""

    cwd: str = ""
    branch: str = ""
    model: str = ""
    version: str = ""
    #: The address of the folder's git remote.
    remote: str = ""


class SessionClosed(NamedTuple):
    """The agent ended the session. (It may still be resumed.)"""

    at: str | None = None
    reason: str = ""


class UnknownRecord(NamedTuple):
    """A record of a kind that the reader does not know. It is kept raw and counted."""

    kind: str


class OddRecord(NamedTuple):
    """Something is wrong with a record: torn, NULs, a missing or reused ordinal. It is kept raw; reading goes on."""

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
