"""Raw events → facts → changes of the view of a session. Pure: the same events give the same view, in one go or bit by bit.

A session may come in on several channels: its transcript, its hooks, the tap. Each message counts once. Two messages of
different channels are the same if they have the same key, or the same role and the same words. A message is paired with at most
one message of each other channel, so "continue" said twice stays two messages. The message is shown as the stronger channel has
it, in the place where it came first. The order of a transcript is the truth: a message that it has behind others lies behind
them, whichever channel came first.

A transcript may repeat records that were read before: it was cut and came back, or lies in a second place (a copy, a restored
one). While it only repeats, its rewinds are not applied again: that would also take back what came after them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.acp import reader as acp
from dreamkeep.agents.facts import Fact
from dreamkeep.agents.registry import find, reader_for
from dreamkeep.agents.shared.values import digest, items, table, text
from dreamkeep.event import Event, Kind
from dreamkeep.session import turns as t
from dreamkeep.session.changes import Changes
from dreamkeep.session.compactions.segments import Folding
from dreamkeep.session.folders import note_folder, note_tool
from dreamkeep.session.messages import Message, Order, Taken
from dreamkeep.session.reading.own_answers import is_our_answer
from dreamkeep.session.reading.packs import holds_pack, without_packs
from dreamkeep.session.records import records
from dreamkeep.session.summary import ACTIVE, ENDED, Summary, title_of

State = dict[str, Any]
Place = tuple[int, int]

#: Channels as bits; a higher bit counts more. History that an agent repeats over ACP is the weakest: it only adds messages that
#: no other channel has. An agent's side journal (`turns` of Hermes WebUI) is as weak as a hook. TEXT is a file beside a
#: transcript: it has the whole text, of which the transcript may show only the beginning.
REPLAY, HOOK, ACP, FILE, TEXT = 1, 2, 4, 8, 16
_BITS = {"replay": REPLAY, "turns": HOOK, "hook": HOOK, "acp": ACP, "stderr": ACP, "file": FILE, "row": FILE, "piece": FILE}
_BITS["text"] = TEXT
#: Channels that are an agent's own files.
FROM_FILES = FILE | TEXT
_WEAK_SOURCES = frozenset(("turns", "run"))
_OWN_AGENT = "python"
#: Stands before a record's id, so that it can't be the key of a message.
_RECORD = "record:"
#: Changes after which a source is read from its beginning, or repeats what it had before.
_REWRITTEN = frozenset(("shrank", "rewritten", "replaced", "mended"))
#: Channels of an agent's own store, which are read in its order, record by record.
_IN_ORDER = ("file:", "row:")
#: States of turns that a record gave. A repeated transcript does not change them.
_SETTLED = frozenset(t.SETTLED) - {t.INTERRUPTED}

_MOST_TURNS = 8
_MOST_CONNECTIONS = 8
_MOST_HELD_BACK = 64
#: At most so many messages of a transcript move before a message that the tap had first.
_MOST_LOOSE = 64
_MOST_KINDS = 100
_MOST_ODD = 20


class _Incoming(NamedTuple):
    """A message as one channel has it. `twin`: a key that is the same on every channel."""

    said: f.MessageSaid
    bit: int
    mark: str
    turn: str | None
    twin: str


class Fold:
    """Folds one session's raw events. `state()` is JSON data, from which another Fold continues later."""

    def __init__(self, session: str, state: State, changes: Changes) -> None:
        self._agent, _, self._native = session.partition(":")
        self._state = state
        self._changes = changes
        self._segments = Folding(self._native, state.get("segments"))
        self._readers: dict[str, Any] = {}
        # The current place: the frame, the numbers of the message and of the record in it, and when it was captured.
        self._seq = 0
        self._n = 0
        self._record_n = 0
        self._at = ""
        self._copied = False
        #: The lock of the process that handed over the current items.
        self._owner = ""
        #: The name of the reader that read the current facts.
        self._reader_name = ""

    def state(self) -> State:
        for name, reader in self._readers.items():
            self._saved_readers()[name] = reader.state
        self._state["segments"] = self._segments.state
        return self._state

    def counted(self, summary: Summary) -> Summary:
        view = self._segments.view("")
        return summary._replace(segments=len(view.segments), compactions=view.count)

    # -- events

    def step(self, summary: Summary, seq: int, event: Event) -> Summary:
        """Returns the summary after the event. All other changes go into `changes`."""
        self._seq, self._n, self._record_n, self._at = seq, 0, 0, event.at
        # Capture has marked which of a fork's records are copies of its parent's.
        self._copied = bool(event.body.get("copied"))
        self._owner = str(event.body.get("owner") or "") if event.kind == Kind.ITEMS_ADDED else ""
        if event.kind == Kind.SOURCE_CHANGED:
            if event.body.get("what") == "moved":
                self._move_source(event.body)
            elif event.body.get("what") in _REWRITTEN:
                self._expect_repeats(f"file:{event.body.get('source')}")
            return summary
        if event.kind == Kind.COMPACTION_CLOSED:
            self._segments.give_up(event.body.get("opened_at"), str(event.body["closing"]), event.at)
            return summary
        if event.kind == Kind.LINEAGE_FOUND:
            kind, session, evidence = (str(event.body.get(name, "")) for name in ("kind", "session", "evidence"))
            return self._fold_fact(summary, "", f.Edge(kind, session, evidence))
        if event.kind in (Kind.TAP_OPENED, Kind.TAP_CLOSED):
            summary = self._change_owner(summary, event)
        unended = self._state.setdefault("unended", {})
        for name, record in records(event, unended, self._lines_read_before(event)):
            self._record_n += 1
            if isinstance(record, f.OddRecord):
                summary = self._fold_fact(summary, name, record)
            else:
                summary = self._read(summary, name, record)
        if event.kind == Kind.TAP_CLOSED:
            self._forget_connection(f"acp:{event.body.get('conn')}")
        return summary

    def _read(self, summary: Summary, name: str, record: f.Record) -> Summary:
        channel = "turns" if record.source in _WEAK_SOURCES else record.channel
        self._reader_name = name
        try:
            for fact in self._reader(name, record.channel).read(record):
                summary = self._fold_fact(summary, channel, fact)
        except Exception as problem:  # a record that breaks its reader must not hide the session; it is noted, and kept raw
            summary = self._fold_fact(summary, channel, f.OddRecord("reader", f"{type(problem).__name__}: {problem}"))
        return summary

    def native(self, seq: int, event: Event) -> None:
        """Notes that a turn began or ended which a program recorded through the Python API: it bounds segments, too."""
        if self._agent == _OWN_AGENT:
            return  # its sessions are not captured, so they have no boundaries
        body = event.body
        if event.kind in (Kind.TURN_SUBMITTED, Kind.TURN_RECORDED):
            self._segments.step((seq, 0), f.TurnBegan(body["turn"], "", event.at))
        if event.kind in (Kind.TURN_SETTLED, Kind.TURN_RECORDED):
            self._segments.step((seq, 0), f.TurnSettled(body["turn"], body["state"], event.at))

    # -- readers

    def _reader(self, name: str, channel: str) -> Any:
        reader = self._readers.get(name)
        if reader is None:
            if name.startswith("acp:"):
                self._forget_old_connections(name)
            saved = self._saved_readers()
            state = saved.get(name) or {}
            if not state and any(_read_the_same(name, other) for other in (*self._readers, *saved)):
                self._expect_repeats(name)
            reader = self._readers[name] = reader_for(self._agent, channel, state)
        return reader

    def _saved_readers(self) -> dict[str, Any]:
        saved: dict[str, Any] = self._state.setdefault("readers", {})
        return saved

    def _forget_old_connections(self, name: str) -> None:
        """A tap that was killed never says that its connection is over."""
        known = self._state.setdefault("connections", [])
        if name not in known:
            known.append(name)
        while len(known) > _MOST_CONNECTIONS:
            self._forget_connection(known[0])

    def _forget_connection(self, name: str) -> None:
        known = self._state.get("connections", [])
        if name in known:
            known.remove(name)
        self._readers.pop(name, None)
        self._saved_readers().pop(name, None)

    def _change_owner(self, summary: Summary, event: Event) -> Summary:
        """Several taps may run at once; each closes only its own connection."""
        owners: list[list[str]] = self._state.setdefault("owners", [])
        conn = str(event.body.get("conn") or "")
        owners_here = [name for other, name in owners if other == conn]
        owners[:] = [pair for pair in owners if pair[0] != conn]
        if event.kind == Kind.TAP_OPENED:
            name = str(event.body.get("owner") or "")
            owners.append([conn, name])
            del owners[:-_MOST_CONNECTIONS]
            return self._fold_fact(summary, "acp", f.Owner(name, True, event.at))
        if not owners_here or not owners_here[0]:
            return summary
        reason = str(event.body.get("reason") or "")
        return self._fold_fact(summary, "acp", f.Owner(owners_here[0], False, event.at, reason))

    def _move_source(self, body: Mapping[str, Any]) -> None:
        """A source has a new name: everything that is remembered about it gets that name, too."""
        old, new = str(body.get("was") or ""), str(body.get("source") or "")
        _rename(self._state.setdefault("unended", {}), old, new)
        _rename(self._state.get("lines", {}), old, new)
        for channel in ("file", "piece", "row"):
            names = f"{channel}:{old}", f"{channel}:{new}"
            _rename(self._state.get("again", {}), *names)
            saved = self._saved_readers().pop(names[0], None)
            if names[0] in self._readers:
                _rename(self._readers, *names)
            elif saved is not None:
                self._saved_readers()[names[1]] = saved

    # -- what is repeated

    def _lines_read_before(self, event: Event) -> Collection[int]:
        """Of a file that came back, the numbers of the lines that were read before, as capture found them in its journal. Nothing
        if one of its frames was lost since, because then some of these lines may not have been read."""
        if event.kind != Kind.SOURCE_READ or event.body.get("text") or event.body.get("pieces"):
            return ()
        lines = self._state.setdefault("lines", {})
        name, repeated = text(event.body.get("source")), table(event.body.get("again"))
        before, here = lines.get(name, 0), len(items(event.body.get("lines")))
        lines[name] = before + here
        if not repeated or repeated.get("after") != before:
            return ()
        return {n for first, many in repeated["which"] for n in range(max(0, first), min(first + many, here))}

    def _expect_repeats(self, reader: str) -> None:
        """Holds back the rewinds of this reader until it has a new message."""
        if reader.startswith(_IN_ORDER):
            self._state.setdefault("again", {})[reader] = []

    def _is_repeating(self) -> bool:
        return self._reader_name in self._state.get("again", {})

    def _hold_back(self, fact: f.MessagesRewound | f.MessagesRestored) -> bool:
        if not self._is_repeating():
            return False
        rewinds: list[Any] = self._state["again"][self._reader_name]
        rewinds[:] = [*rewinds, [isinstance(fact, f.MessagesRewound), list(fact)]][-_MOST_HELD_BACK:]
        return True

    def _drop_held_back(self) -> None:
        """A message is known already. So the rewinds before it were applied before, too."""
        if self._is_repeating():
            self._state["again"][self._reader_name] = []

    def _release_held_back(self, summary: Summary, channel: str) -> Summary:
        """A message is new: from here on, this reader no longer repeats."""
        for is_rewind, fields in self._state.get("again", {}).pop(self._reader_name, ()):
            fact = f.MessagesRewound(*fields) if is_rewind else f.MessagesRestored(*fields)
            summary = self._fold_fact(summary, channel, fact)
        return summary

    # -- facts

    def _fold_fact(self, summary: Summary, channel: str, fact: Fact) -> Summary:
        summary = _extend_times(summary, getattr(fact, "at", None))
        step = self._STEPS.get(type(fact))
        return step(self, summary, channel, fact) if step else summary

    def _add_message(self, summary: Summary, channel: str, said: f.MessageSaid) -> Summary:
        bit = self._note_channel("replay" if said.key.startswith(acp.REPLAY) else channel)
        mark = f.COPIED if self._copied else f.INJECTED if _is_pack(said) else said.mark
        turn = None if mark == f.COPIED or bit == REPLAY else self._turn_of(channel, said.turn)
        incoming = _Incoming(said, bit, mark, turn, _twin(said))

        known = self._changes.message(said.key)
        half = self._find_other_half(incoming, known)
        if half is not None:
            is_preview = bool(said.file if bit != TEXT else known and not known.heard & TEXT)
            return self._join_halves(summary, half, incoming, is_preview)
        if known is not None:
            self._drop_held_back()
            self._name_record(said.record, known[:2])
            return self._update_message(summary, known, incoming)

        summary = self._release_held_back(summary, channel)
        tool_use = self._tool_use(channel, said, turn) if bit != REPLAY else ""
        same = None if mark == f.COPIED else self._find_same(incoming) or self._find_same_use(tool_use, bit)
        if same is not None:
            self._merge(same, incoming)
            self._name_record(said.record, same[:2])
            self._name_file(said.file, same[:2])
            return summary
        return self._append_message(summary, incoming, tool_use)

    def _append_message(self, summary: Summary, incoming: _Incoming, tool_use: str) -> Summary:
        said, bit, mark = incoming.said, incoming.bit, incoming.mark
        if bit == ACP:
            self._segments.step(self._next_place(), said, self._at)  # a log line lies between two of these
        self._n += 1
        base = self._base_of(said, bit)
        heard = _channels_of(bit)
        message = Message(self._seq, self._n, said.role, said.text, said.at, incoming.turn, said.tool, mark, heard, base)
        place = message[:2]
        self._changes.put(message, said.key, incoming.twin)
        if said.tool and mark != f.COPIED:
            note_tool(self._state, said.tool, said.text, f"{message.seq}.{message.n}")
        self._name_record(said.record, place)
        self._name_file(said.file, place)
        if tool_use:
            self._changes.keys[tool_use] = place
        if bit == FILE:
            if said.role == f.ASSISTANT:
                self._state["answer"] = said.key
            self._state["told"] = list(message.place)
            if message.base is None and self._state["channels"] != FILE:
                self._state["loose"] = [*self._state.get("loose", ()), said.key][-_MOST_LOOSE:]
        if mark == f.PARTIAL:
            self._state["partial"] = said.key
        return summary if mark == f.COPIED else summary._replace(messages=summary.messages + 1)

    def _name_record(self, record: str, place: Place) -> None:
        """A record with several messages begins with the first of them."""
        if record and self._changes.message(_RECORD + record) is None:
            self._changes.keys[_RECORD + record] = place

    def _name_file(self, file: str, place: Place) -> None:
        """The text of a file beside the transcript begins with this message."""
        if file and self._changes.message(f.WHOLE + file) is None:
            self._changes.keys[f.WHOLE + file] = place

    def _base_of(self, said: f.MessageSaid, bit: int) -> Place | None:
        """The place of the message behind which this one belongs; None for the end."""
        if bit == TEXT:
            first = self._changes.message(f.WHOLE + said.file)
            return first.place if first and first.heard != TEXT else None
        base = self._state.get("anchors", {}).get(str(bit))
        return (base[0], base[1]) if base else None

    # -- a transcript's preview and the file with the whole text

    def _find_other_half(self, incoming: _Incoming, known: Message | None) -> Message | None:
        """For a preview, the beginning of its file; for the beginning of a file, its preview. None if that has not come yet."""
        said, bit = incoming.said, incoming.bit
        if bit == TEXT:
            if said.key != f.WHOLE + said.file:
                return None
            return known or (self._changes.twin(incoming.twin, bit) if said.tool else None)
        if known or not self._state["channels"] & TEXT:
            return None
        half = self._changes.message(f.WHOLE + said.file) if said.file else None
        half = half or (self._changes.twin(incoming.twin, bit) if said.tool else None)
        return half if half and half.heard & TEXT and half.heard & ~TEXT < bit else None

    def _join_halves(self, summary: Summary, half: Message, incoming: _Incoming, is_preview: bool) -> Summary:
        """Makes one message of both: the words come from the file, everything else from the transcript. (If the transcript does
        not say that it shows a preview, it may have the same words as the file, or more.)"""
        said, bit = incoming.said, incoming.bit
        tool = {**(half.tool or {}), **(said.tool or {})} or None
        in_transcript, in_file = (half.text, said.text) if bit == TEXT else (said.text, half.text)
        words = in_file if is_preview or len(in_file) > len(in_transcript) else in_transcript
        whole = half._replace(text=words, tool=tool, heard=half.heard | bit)
        if bit != TEXT:
            whole = whole._replace(role=said.role, at=said.at or half.at, turn=incoming.turn or half.turn, mark=incoming.mark)
        same = self._find_same(incoming) if bit != TEXT and incoming.mark != f.COPIED else None
        if same is not None and same[:2] != half[:2]:
            # Another channel had this message before, which we only know now.
            self._changes.remove(half)
            turn, heard = whole.turn or same.turn, whole.heard | same.heard
            whole = whole._replace(seq=same.seq, n=same.n, base=same.base, turn=turn, heard=heard)
            self._changes.keys[f.WHOLE + said.file] = whole[:2]
            summary = summary._replace(messages=summary.messages - 1)
        self._changes.put(whole, said.key, _twin_of(whole))
        self._name_file(said.file, whole[:2])
        return summary

    # -- a message that is known

    def _update_message(self, summary: Summary, known: Message, incoming: _Incoming) -> Summary:
        """A newer version of a message. If it was partial and is whole now, it may turn out that another channel had it."""
        said, mark = incoming.said, incoming.mark
        if incoming.bit < _strongest(known.heard):
            return summary
        if known.mark == f.PARTIAL and mark != f.PARTIAL:
            same = self._find_same(incoming)
            if same is not None and same[:2] != known[:2]:
                self._changes.remove(known)
                self._merge(same, incoming._replace(turn=known.turn))
                return summary._replace(messages=summary.messages - 1)
        if known.mark == f.COPIED or (known.mark == f.REWOUND and mark in ("", f.PARTIAL)):
            mark = known.mark  # a copied or rewound message stays so
        newer = known._replace(role=said.role, text=said.text, at=known.at or said.at, tool=said.tool or known.tool, mark=mark)
        self._changes.put(newer, said.key, incoming.twin)
        return summary

    def _find_same(self, incoming: _Incoming) -> Message | None:
        """The same message, as another channel had it."""
        said, bit = incoming.said, incoming.bit
        if self._state.get("channels", 0) in (0, bit):
            return None
        same = self._changes.twin(incoming.twin, bit)
        words = said.text.strip()
        if same is not None or said.role != f.ASSISTANT or said.tool or not words:
            return same
        if said.mark == f.PARTIAL:
            # A stronger channel may have the whole of what only begins here.
            answer = self._changes.message(self._state.get("answer", ""))
            whole = answer and not answer.heard & bit and answer.text.strip().startswith(words)
            return answer if whole else None
        partial = self._changes.message(self._state.get("partial", ""))
        if partial and partial.mark == f.PARTIAL and not partial.heard & bit and words.startswith(partial.text.strip()):
            return partial
        return None

    def _tool_use(self, channel: str, said: f.MessageSaid, turn: str | None) -> str:
        """A key for agents whose tools have other ids on each channel: the number of this use in its turn."""
        agent = find(self._agent) if said.tool and turn else None
        if agent is None or not agent.unlike_tool_ids or not said.tool:
            return ""
        counts = self._state.setdefault("nth", {})
        if counts.get(channel, {}).get("turn") != turn:
            counts[channel] = {"turn": turn}
        # If tools have other names over ACP, too, two uses may be mixed up. That does no harm: the transcript counts more.
        tool_use = said.role if agent.unlike_tool_names else f"{said.role}:{said.tool.get('name')}"
        counts[channel][tool_use] = n = counts[channel].get(tool_use, 0) + 1
        return f"nth:{turn}:{tool_use}:{n}"

    def _find_same_use(self, tool_use: str, bit: int) -> Message | None:
        same = self._changes.message(tool_use) if tool_use and self._state["channels"] != bit else None
        return same if same and not same.heard & bit else None

    def _merge(self, same: Message, incoming: _Incoming) -> None:
        said, bit = incoming.said, incoming.bit
        same = same._replace(turn=same.turn or incoming.turn)
        is_stronger = bit > _strongest(same.heard)
        if is_stronger:
            tool = {**(same.tool or {}), **(said.tool or {})} or None
            same = same._replace(role=said.role, text=said.text, at=said.at or same.at, tool=tool, mark=incoming.mark)
        elif said.tool:
            same = same._replace(tool={**said.tool, **(same.tool or {})})
        if bit == FILE:
            same = self._put_in_transcript_order(same)
        twin = incoming.twin if is_stronger else _twin_of(same)
        self._changes.put(same._replace(heard=same.heard | _channels_of(bit)), said.key, twin)
        # If this channel alone has the next message, that belongs behind this one, not at the end.
        self._state.setdefault("anchors", {})[str(bit)] = list(same.place)

    def _put_in_transcript_order(self, same: Message) -> Message:
        """Moves a message that came before the transcript was read, so that both are in order. If a hook reported it, it moves
        behind the messages that the transcript has before it (the session began before its hooks, or the agent spoke first). If
        the tap had it, it stays, because a tap has all its messages in order: then the few messages that the tap lacks move."""
        loose = self._state.pop("loose", ())
        if same.place < self._last_place():
            if same.heard & ACP:
                self._move_before(same, loose)
            else:
                self._n += 1
                same = same._replace(base=(self._seq, self._n))
        self._state["told"] = list(same.place)
        return same

    def _move_before(self, same: Message, keys: Iterable[str]) -> None:
        seq, n = same.place
        for key in keys:
            message = self._changes.message(key)
            if message is not None and message.place > same.place:
                self._changes.put(message._replace(base=(seq, n - 1)), key, _twin_of(message))

    def _last_place(self) -> Place:
        """The place of the transcript's last message."""
        seq, n = self._state.get("told", (0, 0))
        return seq, n

    def _next_place(self) -> Place:
        """The place of the next message. A boundary here opens a segment that begins with this message."""
        return self._seq, self._n + 1

    def _note_channel(self, channel: str) -> int:
        bit = _BITS.get(channel, FILE)
        self._state["channels"] = self._state.get("channels", 0) | bit
        return bit

    # -- turns

    def _turn_of(self, channel: str, named: str) -> str | None:
        current = self._state.setdefault("turns", {}).get(channel, {})
        known: dict[str, str] = dict(current.get("known", ()))
        current_id: str | None = current.get("id")
        return known.get(named, named) if named else current_id

    def _begin_turn(self, summary: Summary, channel: str, began: f.TurnBegan) -> Summary:
        if self._copied:
            return summary
        bit = self._note_channel(channel)
        turn, name = self._changes.turn(began.turn), began.turn
        # The same prompt may have begun the turn on another channel, or, if it is repeated, under another name.
        elsewhere = self._state["channels"] != bit and began.prompt.strip()
        same = self._changes.twin(_twin_of_words(f.USER, began.prompt), bit) if elsewhere else None
        if turn is None and same is not None and same.turn:
            turn, name = self._changes.turn(same.turn), same.turn
        prompt = self._changes.message(began.key) if turn is None and began.key else None
        if prompt is not None and prompt.mark == f.COPIED:
            return summary  # the original counts
        if prompt is not None and prompt.turn:
            turn, name = self._changes.turn(prompt.turn), prompt.turn
        in_transcript = bit == FILE and same is not None and same.turn == name
        if turn is not None and in_transcript and (turn.seq, turn.n) < self._last_place():
            turn = turn._replace(seq=self._seq, n=self._n + 1)  # with its prompt, which comes next

        if turn is None:
            self._state.get("anchors", {}).pop(str(bit), None)
            summary = summary._replace(turns=summary.turns + 1)
        owners = self._state.get("owners")
        owner = owners[-1][1] if owners and bit == ACP else self._owner
        began_here = began._replace(turn=name)
        self._changes.turns[name] = now = t.began(turn, self._next_place(), began_here, owner)
        self._remember_turn(channel, began.turn, name)
        self._segments.step(self._next_place(), began_here, self._at)
        if summary.state == ENDED and self._state.get("closed") and (began.at or "") > (summary.ended_at or ""):
            # The session goes on, unless the turn began before its end and was only reported late.
            summary = summary._replace(state=ACTIVE, ended_at=None)
            self._state.pop("closed")
        return summary if summary.title else summary._replace(title=title_of(now.prompt))

    def _remember_turn(self, channel: str, native: str, name: str) -> None:
        current = self._state.setdefault("turns", {}).setdefault(channel, {})
        known = [pair for pair in current.get("known", ()) if pair[0] != native]
        current["known"] = [*known, [native, name]][-_MOST_TURNS:]
        current["id"] = name

    def _settle_turn(self, summary: Summary, channel: str, settled: f.TurnSettled) -> Summary:
        name = None if self._copied else self._turn_of(channel, settled.turn)
        turn = self._changes.turn(name) if name else None
        if turn is None or (self._is_repeating() and turn.state in _SETTLED):
            return summary
        self._changes.turns[turn.id] = t.settled(turn, settled)
        self._segments.step(self._next_place(), settled._replace(turn=turn.id), self._at)
        return summary

    def _rewind(self, summary: Summary, channel: str, rewound: f.MessagesRewound) -> Summary:
        if (rewound.by and self._changes.message(rewound.by)) or self._hold_back(rewound):
            return summary
        place = self._order_of(rewound.key)
        if place is None and rewound.turns > 0:
            last = self._changes.last_turns(min(rewound.turns, 1000))
            place = (last[0].seq, last[0].n, 0, 0) if last else None
        if place is None and rewound.all:
            place = (0, 0, 0, 0)
        if place is not None:
            self._changes.take(Taken(place, (*place[:3], place[3] + 1) if rewound.only else None))
        return summary

    def _restore(self, summary: Summary, channel: str, restored: f.MessagesRestored) -> Summary:
        place = self._order_of(restored.key) if not self._hold_back(restored) else None
        if place is not None:
            self._changes.take(Taken(place, back=False))
        return summary

    def _order_of(self, key: str) -> Order | None:
        """The order of the message with this key, or of the first message in the record with this id."""
        found = (self._changes.message(name) for name in (key, _RECORD + key)) if key else ()
        return min((message.order for message in found if message), default=None)

    # -- segments, lineage and everything else

    def _note_signal(self, summary: Summary, channel: str, signal: f.Signal | f.Boundary | f.Owner) -> Summary:
        if self._copied:
            return summary  # the original counts
        if isinstance(signal, f.Signal) and signal.turn:
            signal = signal._replace(turn=self._turn_of(channel, signal.turn) or "")
        self._segments.step(self._next_place(), signal, self._at)
        if _BITS.get(channel, FILE) == FILE and self._segments.is_cut(self._next_place()):
            # The transcript's next messages lie behind the boundary, even if another channel had them before.
            self._state.get("anchors", {}).pop(str(FILE), None)
            self._state.pop("loose", None)
            self._state["told"] = list(self._next_place())
        return summary

    def _note_edge(self, summary: Summary, channel: str, edge: f.Edge) -> Summary:
        session = edge.session if edge.session.startswith(f"{self._agent}:") else f"{self._agent}:{edge.session}"
        known = self._state.setdefault("lineage", [])
        if edge.session and not any(other["kind"] == edge.kind and other["session"] == session for other in known):
            known.append({"kind": edge.kind, "session": session, "evidence": edge.evidence})
        return summary._replace(lineage=tuple((other["kind"], other["session"]) for other in known))

    def _note_title(self, summary: Summary, channel: str, titled: f.SessionTitled) -> Summary:
        title = title_of(titled.title)
        if not title or titled.rank < self._state.get("title_rank", 0):
            return summary
        self._state["title_rank"] = titled.rank
        return summary._replace(title=title)

    def _note_place(self, summary: Summary, channel: str, placed: f.SessionPlaced) -> Summary:
        for key in ("branch", "model", "version"):
            if value := getattr(placed, key):
                self._state[key] = value[:200]
        note_folder(self._state, placed.cwd, placed.branch, placed.remote, f"{self._seq}.{max(self._n, 1)}")
        return summary if summary.cwd or not placed.cwd else summary._replace(cwd=placed.cwd)

    def _close(self, summary: Summary, channel: str, closed: f.SessionClosed) -> Summary:
        self._state["closed"] = 1
        return summary._replace(state=ENDED, ended_at=closed.at or summary.last_at)

    def _count_unknown(self, summary: Summary, channel: str, unknown: f.UnknownRecord) -> Summary:
        kinds = self._state.setdefault("unknown", {})
        kind = unknown.kind[:80]
        if kind in kinds or len(kinds) < _MOST_KINDS:
            kinds[kind] = kinds.get(kind, 0) + 1
        return summary

    def _count_odd(self, summary: Summary, channel: str, odd: f.OddRecord) -> Summary:
        counted = self._state.setdefault("odd", {"count": 0, "first": []})
        counted["count"] += 1
        if len(counted["first"]) < _MOST_ODD:
            counted["first"].append({"seq": f"{self._seq}.{self._record_n}", "kind": odd.kind, "what": odd.what[:200]})
        return summary

    _STEPS: ClassVar[Mapping[type, Callable[[Fold, Summary, str, Any], Summary]]] = {
        f.MessageSaid: _add_message,
        f.TurnBegan: _begin_turn,
        f.TurnSettled: _settle_turn,
        f.MessagesRewound: _rewind,
        f.MessagesRestored: _restore,
        f.Signal: _note_signal,
        f.Boundary: _note_signal,
        f.Owner: _note_signal,
        f.Edge: _note_edge,
        f.SessionTitled: _note_title,
        f.SessionPlaced: _note_place,
        f.SessionClosed: _close,
        f.UnknownRecord: _count_unknown,
        f.OddRecord: _count_odd,
    }


def _rename(values: dict[str, Any], old: str, new: str) -> None:
    if old in values:
        values[new] = values.pop(old)


def _read_the_same(reader: str, other: str) -> bool:
    """Whether both read a session's own transcript, or its rows, from two places. `reader`: "file:main-…", "row:main-…"."""
    kind = reader.rpartition("-")[0]
    return kind in ("file:main", "file:subagent", "row:main") and other != reader and other.rpartition("-")[0] == kind


def _extend_times(summary: Summary, at: str | None) -> Summary:
    if not at:
        return summary
    started, last = summary.started_at, summary.last_at
    if (started and started <= at) and (last and last >= at):
        return summary
    return summary._replace(started_at=min(started or at, at), last_at=max(last or at, at))


def _channels_of(bit: int) -> int:
    """History over ACP counts as ACP, too: an equal message that the agent says later is another one."""
    return bit | ACP if bit == REPLAY else bit


def _strongest(heard: int) -> int:
    return 1 << heard.bit_length() >> 1


def _is_pack(said: f.MessageSaid) -> bool:
    """Whether this is a pack of ours, from a hook or a tool: nothing may be learned from it. (It counts if a user
    quotes it.)"""
    if not holds_pack(said.text) or said.mark == f.COPIED:
        return False
    if said.role == f.TOOL and is_our_answer(said.text):
        return True
    return said.role == f.SYSTEM or not without_packs(said.text).strip()


def _twin(said: f.MessageSaid) -> str:
    """A key that is the same on every channel: from a tool's own id, else from the words."""
    if said.tool and said.tool.get("id"):
        return digest("tool", said.role, str(said.tool["id"]))
    return _twin_of_words(said.role, said.text)


def _twin_of(message: Message) -> str:
    return _twin(f.MessageSaid(message.role, message.text, "", tool=message.tool))


def _twin_of_words(role: str, text: str) -> str:
    """Ignores stars in thoughts: Gemini writes them around headings over ACP, but not in its file."""
    return digest(role, " ".join((text.replace("**", "") if role == f.REASONING else text).split()))
