"""Raw events → facts → what changes in the view of a session. Pure: the same events give the same view, in one go or bit by bit.

One session may be heard on several channels: its transcript, its hooks, the tap. Each message counts once. Two messages of
different channels are one when they have the same key, or the same role and the same words (each is paired once with each
channel, so "continue" said twice stays two); the stronger channel's form is the one that is shown, in the place of the first.
The order of a transcript is the truth: what it tells behind other messages lies behind them, whoever told of it before.

A transcript may tell again what was read of it before: it was cut and came back, or lies in a second place (a copy, a restored
one). As long as it says only what is known, nothing that it takes back is taken back anew: what came after that would go, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

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

#: Channels as bits; a higher one is believed more. What has its own side journal (`turns` of Hermes WebUI) is as weak as a hook.
#: History that an agent tells again over ACP is a channel of its own, the weakest: it only says what nobody has said. A file
#: beside a transcript has all of the words of which the transcript may show only the first.
REPLAY, HOOK, ACP, FILE, TEXT = 1, 2, 4, 8, 16
_BITS = {"replay": REPLAY, "turns": HOOK, "hook": HOOK, "acp": ACP, "stderr": ACP, "file": FILE, "row": FILE, "piece": FILE}
_BITS["text"] = TEXT
#: Channels that are an agent's own files.
FROM_FILES = FILE | TEXT
_WEAK_SOURCES = frozenset(("turns", "run"))
_TURNS_REMEMBERED = 8
_OWN_AGENT = "python"
_CONNECTIONS = 8
#: So many messages of a transcript are moved before one that the tap heard.
_LOOSE = 64
_KINDS_SHOWN = 100
_ODD_SHOWN = 20
#: Before a record's id, so that it is no message's key.
_RECORD = "record:"
#: How a source changed that is read from its beginning again, or goes on with what it had before.
_REWRITTEN = frozenset(("shrank", "rewritten", "replaced", "mended"))
#: Channels of an agent's own store that are told in its order, record by record.
_IN_ORDER = ("file:", "row:")
_HELD_BACK = 64
#: How a turn ended, if a record said so; that stays, however much of a transcript is told again.
_SETTLED = frozenset(t.SETTLED) - {t.INTERRUPTED}


class Fold:
    """One session's raw events. `state` is JSON data: put it away, and go on later where it was."""

    def __init__(self, session: str, state: State, changes: Changes) -> None:
        self._agent, _, self._native = session.partition(":")
        self._state = state
        self._changes = changes
        self._segments = Folding(self._native, state.get("segments"))
        self._readers: dict[str, Any] = {}
        self._seq = 0
        self._n = 0
        self._record_n = 0
        self._copied = False
        self._hander = ""  # the lock of whoever handed over what is read now
        self._teller = ""  # the reader whose facts these are
        self._at = ""

    def state(self) -> State:
        for name, reader in self._readers.items():
            self._state.setdefault("readers", {})[name] = reader.state
        self._state["segments"] = self._segments.state
        return self._state

    def counted(self, summary: Summary) -> Summary:
        view = self._segments.view("")
        return summary._replace(segments=len(view.segments), compactions=view.count)

    # -- events

    def step(self, summary: Summary, seq: int, event: Event) -> Summary:
        """The summary after the event; everything else goes into `changes`."""
        self._seq, self._n, self._record_n, self._at = seq, 0, 0, event.at
        # A fork's copy of its parent's records: capture saw how far it goes.
        self._copied = bool(event.body.get("copied"))
        self._hander = str(event.body.get("owner") or "") if event.kind == Kind.ITEMS_ADDED else ""
        if event.kind == Kind.SOURCE_CHANGED:
            if event.body.get("what") == "moved":
                self._moved(event.body)
            elif event.body.get("what") in _REWRITTEN:
                self._tells_again(f"file:{event.body.get('source')}")
            return summary
        if event.kind == Kind.COMPACTION_CLOSED:
            self._segments.give_up(event.body.get("opened_at"), str(event.body["closing"]), event.at)
            return summary
        if event.kind == Kind.LINEAGE_FOUND:
            return self._fact(summary, "", _edge(event.body))
        if event.kind in (Kind.TAP_OPENED, Kind.TAP_CLOSED):
            summary = self._owner(summary, event)
        unended = self._state.setdefault("unended", {})
        for name, found in records(event, unended, self._read_before(event)):
            self._record_n += 1
            if isinstance(found, f.OddRecord):
                summary = self._fact(summary, name, found)
                continue
            summary = self._read(summary, name, found)
        if event.kind == Kind.TAP_CLOSED:
            self._forget_reader(f"acp:{event.body.get('conn')}")
        return summary

    def _read(self, summary: Summary, name: str, record: f.Record) -> Summary:
        channel = "turns" if record.source in _WEAK_SOURCES else record.channel
        self._teller = name
        try:
            for fact in self._reader(name, record.channel).read(record):
                summary = self._fact(summary, channel, fact)
        except Exception as problem:  # one record that a reader chokes on must not hide the session; it is told, and kept raw
            summary = self._fact(summary, channel, f.OddRecord("reader", f"{type(problem).__name__}: {problem}"))
        return summary

    def native(self, seq: int, event: Event) -> None:
        """Turns of one's own Python agent are bookends of segments, too."""
        if self._agent == _OWN_AGENT:
            return  # nobody captures it, so nothing tells of boundaries
        body = event.body
        if event.kind in (Kind.TURN_SUBMITTED, Kind.TURN_RECORDED):
            self._segments.step((seq, 0), f.TurnBegan(body["turn"], "", event.at))
        if event.kind in (Kind.TURN_SETTLED, Kind.TURN_RECORDED):
            self._segments.step((seq, 0), f.TurnSettled(body["turn"], body["state"], event.at))

    def _reader(self, name: str, channel: str) -> Any:
        reader = self._readers.get(name)
        if reader is None:
            if name.startswith("acp:"):
                self._forget_old_connections(name)
            state = self._state.setdefault("readers", {}).get(name) or {}
            if not state and any(_alike(name, other) for other in (*self._readers, *self._state["readers"])):
                self._tells_again(name)
            reader = self._readers[name] = reader_for(self._agent, channel, state)
        return reader

    def _forget_old_connections(self, name: str) -> None:
        """A tap that was killed never says that its connection is over."""
        known = self._state.setdefault("connections", [])
        if name not in known:
            known.append(name)
        while len(known) > _CONNECTIONS:
            self._forget_reader(known[0])

    def _forget_reader(self, name: str) -> None:
        known = self._state.get("connections", [])
        if name in known:
            known.remove(name)

        self._readers.pop(name, None)
        self._state.setdefault("readers", {}).pop(name, None)

    def _owner(self, summary: Summary, event: Event) -> Summary:
        """Several taps may be there at once; each closes only for itself."""
        owners: list[list[str]] = self._state.setdefault("owners", [])
        conn = str(event.body.get("conn") or "")
        mine = [name for other, name in owners if other == conn]
        owners[:] = [pair for pair in owners if pair[0] != conn]
        if event.kind == Kind.TAP_OPENED:
            name = str(event.body.get("owner") or "")
            owners.append([conn, name])
            del owners[:-_CONNECTIONS]
            return self._fact(summary, "acp", f.Owner(name, True, event.at))
        if not mine or not mine[0]:
            return summary
        reason = str(event.body.get("reason") or "")
        return self._fact(summary, "acp", f.Owner(mine[0], False, event.at, reason))

    def _moved(self, body: Mapping[str, Any]) -> None:
        """A source has a new name: what was begun under the old one goes on."""
        old, new = str(body.get("was") or ""), str(body.get("source") or "")
        unended = self._state.setdefault("unended", {})
        if old in unended:
            unended[new] = unended.pop(old)
        lines = self._state.get("lines", {})
        if old in lines:
            lines[new] = lines.pop(old)
        for channel in ("file", "piece", "row"):
            again = self._state.get("again", {})
            if f"{channel}:{old}" in again:
                again[f"{channel}:{new}"] = again.pop(f"{channel}:{old}")
            reader = self._readers.pop(f"{channel}:{old}", None)
            saved = self._state.setdefault("readers", {}).pop(f"{channel}:{old}", None)
            if reader is not None:
                self._readers[f"{channel}:{new}"] = reader
            elif saved is not None:
                self._state["readers"][f"{channel}:{new}"] = saved

    # -- what is told again

    def _read_before(self, event: Event) -> Collection[int]:
        """Of the lines of a file that came back, those that were read: capture saw them in its journal. Unless one of its frames
        was lost since: then some of them may not have been read."""
        if event.kind != Kind.SOURCE_READ or event.body.get("text") or event.body.get("pieces"):
            return ()
        lines, name, again = self._state.setdefault("lines", {}), text(event.body.get("source")), table(event.body.get("again"))
        before, here = lines.get(name, 0), len(items(event.body.get("lines")))
        lines[name] = before + here
        if not again or again.get("after") != before:
            return ()
        return {n for first, many in again["which"] for n in range(max(0, first), min(first + many, here))}

    def _tells_again(self, reader: str) -> None:
        """Until it says something that nobody knows. What it takes back is held till then."""
        if reader.startswith(_IN_ORDER):
            self._state.setdefault("again", {})[reader] = []

    def _is_held(self, fact: f.MessagesRewound | f.MessagesRestored) -> bool:
        held: list[Any] | None = self._state.get("again", {}).get(self._teller)
        if held is None:
            return False
        held[:] = [*held, [isinstance(fact, f.MessagesRewound), list(fact)]][-_HELD_BACK:]
        return True

    def _known_already(self) -> None:
        """So what it took back before was taken back then."""
        if self._state.get("again", {}).get(self._teller):
            self._state["again"][self._teller] = []

    def _new(self, summary: Summary, channel: str) -> Summary:
        """Something that it has not told before: from here on it goes on."""
        for taken, fields in self._state.get("again", {}).pop(self._teller, ()):
            summary = self._fact(summary, channel, f.MessagesRewound(*fields) if taken else f.MessagesRestored(*fields))
        return summary

    # -- facts

    def _fact(self, summary: Summary, channel: str, fact: Fact) -> Summary:
        summary = _timed(summary, getattr(fact, "at", None))
        act = self._ACTS.get(type(fact))
        return act(self, summary, channel, fact) if act else summary

    def _take_message(self, summary: Summary, channel: str, said: f.MessageSaid) -> Summary:
        changes = self._changes
        bit = self._heard("replay" if said.key.startswith(acp.REPLAY) else channel)
        mark = f.COPIED if self._copied else f.INJECTED if _is_pack(said) else said.mark
        turn = None if mark == f.COPIED or bit == REPLAY else self._turn_of(channel, said.turn)
        twin = _twin(said)
        known = changes.message(said.key)
        half = self._other_half(said, known, bit, twin)
        if half is not None:
            previewed = bool(said.file if bit != TEXT else known and not known.heard & TEXT)
            return self._whole(summary, half, said, mark, bit, turn, previewed)
        if known is not None:
            self._known_already()
            self._part_of(said.record, known[:2])
            return self._said_again(summary, known, said, mark, bit, twin)
        summary = self._new(summary, channel)
        nth = self._nth(channel, said, turn) if bit != REPLAY else ""
        other = None if mark == f.COPIED else self._other(said, bit, twin) or self._counterpart(nth, bit)
        if other is not None:
            self._merge(other, said, mark, bit, twin, turn)
            self._part_of(said.record, other[:2])
            self._begins(said.file, other[:2])
            return summary
        if bit == ACP:
            self._segments.step(self._here(), said, self._at)  # a log line lies between two of these
        self._n += 1
        place = self._base(said, bit)
        message = Message(self._seq, self._n, said.role, said.text, said.at, turn, said.tool, mark, _also(bit), place)
        changes.put(message, said.key, twin)
        if said.tool and mark != f.COPIED:
            note_tool(self._state, said.tool, said.text, f"{message.seq}.{message.n}")
        self._part_of(said.record, message[:2])
        self._begins(said.file, message[:2])
        if nth:
            changes.keys[nth] = (message.seq, message.n)
        self._remember(said, message, bit)
        return summary if mark == f.COPIED else summary._replace(messages=summary.messages + 1)

    def _remember(self, said: f.MessageSaid, message: Message, bit: int) -> None:
        """What later records refer to."""
        if bit == FILE:
            if said.role == f.ASSISTANT:
                self._state["answer"] = said.key
            self._state["told"] = list(message.place)
            if message.base is None and self._state["channels"] != FILE:
                self._state["loose"] = [*self._state.get("loose", ()), said.key][-_LOOSE:]
        if message.mark == f.PARTIAL:
            self._state["partial"] = said.key

    def _part_of(self, record: str, place: tuple[int, int]) -> None:
        """A record that says several things begins with the first of them."""
        if record and self._changes.message(_RECORD + record) is None:
            self._changes.keys[_RECORD + record] = place

    def _begins(self, file: str, place: tuple[int, int]) -> None:
        """What is in a file beside the transcript begins with this message."""
        if file and self._changes.message(f.WHOLE + file) is None:
            self._changes.keys[f.WHOLE + file] = place

    def _base(self, said: f.MessageSaid, bit: int) -> tuple[int, int] | None:
        """Behind which message it belongs, if not to the end."""
        if bit == TEXT:
            first = self._changes.message(f.WHOLE + said.file)
            return first.place if first and first.heard != TEXT else None
        base = self._state.get("anchors", {}).get(str(bit))
        return (base[0], base[1]) if base else None

    def _other_half(self, said: f.MessageSaid, known: Message | None, bit: int, twin: str) -> Message | None:
        """Of a transcript's preview the beginning of the file, and the other way round: whichever came first."""
        if bit == TEXT:
            first = said.key == f.WHOLE + said.file
            return known or (self._changes.twin(twin, bit) if said.tool else None) if first else None
        if known or not self._state["channels"] & TEXT:
            return None
        found = self._changes.message(f.WHOLE + said.file) if said.file else None
        found = found or (self._changes.twin(twin, bit) if said.tool else None)
        return found if found and found.heard & TEXT and found.heard & ~TEXT < bit else None

    def _whole(
        self, summary: Summary, half: Message, said: f.MessageSaid, mark: str, bit: int, turn: str | None, previewed: bool
    ) -> Summary:
        """One message: the file gives the words, the transcript all that there is to know of them. (A transcript that does not
        say that it shows a preview may have the same words as the file, or more.)"""
        tool = {**(half.tool or {}), **(said.tool or {})} or None
        told, written = (half.text, said.text) if bit == TEXT else (said.text, half.text)
        whole = half._replace(text=written if previewed or len(written) > len(told) else told, tool=tool)
        if bit != TEXT:
            whole = whole._replace(role=said.role, at=said.at or half.at, turn=turn or half.turn, mark=mark)
        whole = whole._replace(heard=half.heard | bit)
        other = self._other(said, bit, _twin(said)) if bit != TEXT and mark != f.COPIED else None
        if other is not None and other[:2] != half[:2]:
            # Another channel told it, too, and only now it is known that it is this.
            self._changes.remove(half)
            turn = whole.turn or other.turn
            whole = whole._replace(seq=other.seq, n=other.n, base=other.base, turn=turn, heard=whole.heard | other.heard)
            self._changes.keys[f.WHOLE + said.file] = whole[:2]
            summary = summary._replace(messages=summary.messages - 1)
        self._changes.put(whole, said.key, _twin_of(whole))
        self._begins(said.file, whole[:2])
        return summary

    def _said_again(self, summary: Summary, known: Message, said: f.MessageSaid, mark: str, bit: int, twin: str) -> Summary:
        """A newer version of a message; and one that was partial, and now is whole, may turn out to be known from elsewhere."""
        if bit < _strongest(known.heard):
            return summary  # a stronger channel has said it
        if known.mark == f.PARTIAL and mark != f.PARTIAL:
            other = self._other(said, bit, twin)
            if other is not None and other[:2] != known[:2]:
                self._changes.remove(known)
                self._merge(other, said, mark, bit, twin, known.turn)
                return summary._replace(messages=summary.messages - 1)
        newer = known._replace(
            role=said.role, text=said.text, at=known.at or said.at, tool=said.tool or known.tool, mark=_marked(known.mark, mark)
        )
        self._changes.put(newer, said.key, twin)
        return summary

    def _other(self, said: f.MessageSaid, bit: int, twin: str) -> Message | None:
        """The same message as another channel told it."""
        if self._state.get("channels", 0) in (0, bit):
            return None
        found = self._changes.twin(twin, bit)
        if found is not None or said.role != f.ASSISTANT or said.tool or not said.text.strip():
            return found
        if said.mark == f.PARTIAL:
            # A stronger channel may have the whole of what is only beginning here.
            answer = self._changes.message(self._state.get("answer", ""))
            whole = answer and not answer.heard & bit and answer.text.strip().startswith(said.text.strip())
            return answer if whole else None
        begun = self._changes.message(self._state.get("partial", ""))
        if begun and begun.mark == f.PARTIAL and not begun.heard & bit and said.text.strip().startswith(begun.text.strip()):
            return begun
        return None

    def _nth(self, channel: str, said: f.MessageSaid, turn: str | None) -> str:
        """Where an agent's tools have other ids on each channel: the how-manieth use of that tool it is in its turn."""
        agent = find(self._agent) if said.tool and turn else None
        if agent is None or not agent.unlike_tool_ids or not said.tool:
            return ""
        counted = self._state.setdefault("nth", {})
        if counted.get(channel, {}).get("turn") != turn:
            counted[channel] = {"turn": turn}
        # Where tools have other names over ACP, too, one taken for its neighbour costs nothing: the transcript's word counts.
        use = said.role if agent.unlike_tool_names else f"{said.role}:{said.tool.get('name')}"
        counted[channel][use] = n = counted[channel].get(use, 0) + 1
        return f"nth:{turn}:{use}:{n}"

    def _counterpart(self, nth: str, bit: int) -> Message | None:
        found = self._changes.message(nth) if nth and self._state["channels"] != bit else None
        return found if found and not found.heard & bit else None

    def _merge(self, other: Message, said: f.MessageSaid, mark: str, bit: int, twin: str, turn: str | None) -> None:
        other = other._replace(turn=other.turn or turn)
        stronger = bit > _strongest(other.heard)
        if stronger:
            tool = {**(other.tool or {}), **(said.tool or {})} or None
            other = other._replace(role=said.role, text=said.text, at=said.at or other.at, tool=tool, mark=mark)
        elif said.tool:
            other = other._replace(tool={**said.tool, **(other.tool or {})})
        if bit == FILE:
            other = self._in_order(other)
        self._changes.put(other._replace(heard=other.heard | _also(bit)), said.key, twin if stronger else _twin_of(other))
        # What this channel says next, and nobody has said before, belongs behind this message: not to the end.
        self._state.setdefault("anchors", {})[str(bit)] = list(other.place)

    def _in_order(self, other: Message) -> Message:
        """A transcript's messages lie as it has them: one that a hook told of before the transcript was read goes behind
        what the transcript tells before it (a session that was there before its hooks, what an agent says to begin with).
        A tap hears everything in its order, also what is in no transcript: there the few that it did not hear move."""
        loose = self._state.pop("loose", ())
        if other.place < self._last_place():
            if other.heard & ACP:
                self._put_before(other, loose)
            else:
                self._n += 1
                other = other._replace(base=(self._seq, self._n))
        self._state["told"] = list(other.place)
        return other

    def _put_before(self, other: Message, loose: Iterable[str]) -> None:
        seq, n = other.place
        for key in loose:
            message = self._changes.message(key)
            if message is not None and message.place > other.place:
                self._changes.put(message._replace(base=(seq, n - 1)), key, _twin_of(message))

    def _last_place(self) -> tuple[int, int]:
        """The place of what the transcript told last."""
        seq, n = self._state.get("told", (0, 0))
        return seq, n

    def _heard(self, channel: str) -> int:
        bit = _BITS.get(channel, FILE)
        self._state["channels"] = self._state.get("channels", 0) | bit
        return bit

    def _here(self) -> tuple[int, int]:
        """The place of the next message: what a boundary here opens begins with it."""
        return self._seq, self._n + 1

    # -- turns

    def _turn_of(self, channel: str, named: str) -> str | None:
        current = self._state.setdefault("turns", {}).get(channel, {})
        known: dict[str, str] = dict(current.get("known", ()))
        going_on: str | None = current.get("id")
        return known.get(named, named) if named else going_on

    def _began(self, summary: Summary, channel: str, began: f.TurnBegan) -> Summary:
        if self._copied:
            return summary
        bit = self._heard(channel)
        turn = self._changes.turn(began.turn)
        name = began.turn
        elsewhere = self._state["channels"] != bit and began.prompt.strip()
        said = self._changes.twin(_words(f.USER, began.prompt), bit) if elsewhere else None
        if turn is None and said is not None and said.turn:
            turn, name = self._changes.turn(said.turn), said.turn
        prompt = self._changes.message(began.key) if turn is None and began.key else None
        if prompt is not None and prompt.mark == f.COPIED:
            return summary  # told again; it counts where it was copied from
        if prompt is not None and prompt.turn:
            turn, name = self._changes.turn(prompt.turn), prompt.turn  # told again, and known by another name
        if (
            turn is not None
            and said is not None
            and said.turn == name
            and bit == FILE
            and (turn.seq, turn.n) < self._last_place()
        ):
            turn = turn._replace(seq=self._seq, n=self._n + 1)  # as its prompt, which comes next
        owners = self._state.get("owners")
        owner = owners[-1][1] if owners and bit == ACP else self._hander
        fresh = turn is None
        if fresh:
            self._state.get("anchors", {}).pop(str(bit), None)
        now = t.began(turn, self._here(), began._replace(turn=name), owner)
        self._changes.turns[name] = now
        self._remember_turn(channel, began.turn, name)
        self._segments.step(self._here(), began._replace(turn=name), self._at)
        if fresh:
            summary = summary._replace(turns=summary.turns + 1)
        if summary.state == ENDED and self._state.get("closed") and (began.at or "") > (summary.ended_at or ""):
            # It goes on. (A turn of before its end that is only told late is no reason.)
            summary = summary._replace(state=ACTIVE, ended_at=None)
            self._state.pop("closed")
        if not summary.title:
            summary = summary._replace(title=title_of(now.prompt))
        return summary

    def _remember_turn(self, channel: str, native: str, name: str) -> None:
        current = self._state.setdefault("turns", {}).setdefault(channel, {})
        known = [pair for pair in current.get("known", ()) if pair[0] != native]
        current["known"] = [*known, [native, name]][-_TURNS_REMEMBERED:]
        current["id"] = name

    def _settled(self, summary: Summary, channel: str, settled: f.TurnSettled) -> Summary:
        name = None if self._copied else self._turn_of(channel, settled.turn)
        turn = self._changes.turn(name) if name else None
        if turn is None or (self._teller in self._state.get("again", {}) and turn.state in _SETTLED):
            return summary
        self._changes.turns[turn.id] = t.settled(turn, settled)
        self._segments.step(self._here(), settled._replace(turn=turn.id), self._at)
        return summary

    def _rewound(self, summary: Summary, channel: str, rewound: f.MessagesRewound) -> Summary:
        if (rewound.by and self._changes.message(rewound.by)) or self._is_held(rewound):
            return summary
        place = self._place_of(rewound.key)
        if place is None and rewound.turns > 0:
            last = self._changes.last_turns(min(rewound.turns, 1000))
            place = (last[0].seq, last[0].n, 0, 0) if last else None
        if place is None and rewound.all:
            place = (0, 0, 0, 0)
        if place is not None:
            self._changes.take(Taken(place, (*place[:3], place[3] + 1) if rewound.only else None))
        return summary

    def _restored(self, summary: Summary, channel: str, restored: f.MessagesRestored) -> Summary:
        place = self._place_of(restored.key) if not self._is_held(restored) else None
        if place is not None:
            self._changes.take(Taken(place, back=False))
        return summary

    def _place_of(self, key: str) -> Order | None:
        """Of the message, or of the first thing that the record said."""
        found = (self._changes.message(name) for name in (key, _RECORD + key)) if key else ()
        return min((message.order for message in found if message), default=None)

    # -- segments, lineage, and what else there is to know

    def _signal(self, summary: Summary, channel: str, signal: f.Signal | f.Boundary | f.Owner) -> Summary:
        if self._copied:
            return summary  # it counts where it was copied from
        if isinstance(signal, f.Signal) and signal.turn:
            signal = signal._replace(turn=self._turn_of(channel, signal.turn) or "")
        self._segments.step(self._here(), signal, self._at)
        if _BITS.get(channel, FILE) == FILE and self._segments.is_cut(self._here()):
            # What the transcript tells from here on lies behind the boundary, also what others told of before it was read.
            self._state.get("anchors", {}).pop(str(FILE), None)
            self._state.pop("loose", None)
            self._state["told"] = list(self._here())
        return summary

    def _edged(self, summary: Summary, channel: str, edge: f.Edge) -> Summary:
        session = edge.session if edge.session.startswith(f"{self._agent}:") else f"{self._agent}:{edge.session}"
        known = self._state.setdefault("lineage", [])
        if edge.session and not any(one["kind"] == edge.kind and one["session"] == session for one in known):
            known.append({"kind": edge.kind, "session": session, "evidence": edge.evidence})
        return summary._replace(lineage=tuple((one["kind"], one["session"]) for one in known))

    def _titled(self, summary: Summary, channel: str, titled: f.SessionTitled) -> Summary:
        title = title_of(titled.title)
        if not title or titled.rank < self._state.get("title_rank", 0):
            return summary
        self._state["title_rank"] = titled.rank
        return summary._replace(title=title)

    def _placed(self, summary: Summary, channel: str, placed: f.SessionPlaced) -> Summary:
        for key in ("branch", "model", "version"):
            if value := getattr(placed, key):
                self._state[key] = value[:200]
        note_folder(self._state, placed.cwd, placed.branch, placed.remote, f"{self._seq}.{max(self._n, 1)}")
        return summary if summary.cwd or not placed.cwd else summary._replace(cwd=placed.cwd)

    def _closed(self, summary: Summary, channel: str, closed: f.SessionClosed) -> Summary:
        self._state["closed"] = 1
        return summary._replace(state=ENDED, ended_at=closed.at or summary.last_at)

    def _unknown(self, summary: Summary, channel: str, unknown: f.UnknownRecord) -> Summary:
        kinds = self._state.setdefault("unknown", {})
        kind = unknown.kind[:80]
        if kind in kinds or len(kinds) < _KINDS_SHOWN:
            kinds[kind] = kinds.get(kind, 0) + 1
        return summary

    def _odd(self, summary: Summary, channel: str, odd: f.OddRecord) -> Summary:
        found = self._state.setdefault("odd", {"count": 0, "first": []})
        found["count"] += 1
        if len(found["first"]) < _ODD_SHOWN:
            found["first"].append({"seq": f"{self._seq}.{self._record_n}", "kind": odd.kind, "what": odd.what[:200]})
        return summary

    _ACTS: Mapping[type, Callable[[Fold, Summary, str, Any], Summary]] = {
        f.MessageSaid: _take_message,
        f.TurnBegan: _began,
        f.TurnSettled: _settled,
        f.MessagesRewound: _rewound,
        f.MessagesRestored: _restored,
        f.Signal: _signal,
        f.Boundary: _signal,
        f.Owner: _signal,
        f.Edge: _edged,
        f.SessionTitled: _titled,
        f.SessionPlaced: _placed,
        f.SessionClosed: _closed,
        f.UnknownRecord: _unknown,
        f.OddRecord: _odd,
    }


def _alike(reader: str, other: str) -> bool:
    """Whether both read a session's own transcript, or its rows, from two places. `reader`: "file:main-…", "row:main-…"."""
    kind = reader.rpartition("-")[0]
    return kind in ("file:main", "file:subagent", "row:main") and other != reader and other.rpartition("-")[0] == kind


def _timed(summary: Summary, at: str | None) -> Summary:
    if not at:
        return summary
    started, last = summary.started_at, summary.last_at
    if (started and started <= at) and (last and last >= at):
        return summary
    return summary._replace(started_at=min(started or at, at), last_at=max(last or at, at))


def _edge(body: Mapping[str, Any]) -> f.Edge:
    return f.Edge(
        str(body.get("kind", "")),
        str(body.get("session", "")),
        str(body.get("evidence", "")),
    )


def _marked(before: str, now: str) -> str:
    """A newer version may lift `partial`; what was taken back or copied stays so."""
    return before if before == f.COPIED or (before == f.REWOUND and now in ("", f.PARTIAL)) else now


def _also(bit: int) -> int:
    """What was told as history is nothing that the agent may still say: an equal message that comes later is another one."""
    return bit | ACP if bit == REPLAY else bit


def _is_pack(said: f.MessageSaid) -> bool:
    """Our own words, handed in by a hook or a tool: never to be learned again. (A user who quotes one said something.)"""
    if not holds_pack(said.text) or said.mark == f.COPIED:
        return False
    if said.role == f.TOOL and is_our_answer(said.text):
        return True
    return said.role == f.SYSTEM or not without_packs(said.text).strip()


def _strongest(heard: int) -> int:
    return 1 << heard.bit_length() >> 1


def _words(role: str, text: str) -> str:
    """Gemini's thoughts have a heading, with stars around it over ACP and without in its file."""
    return digest(role, " ".join((text.replace("**", "") if role == f.REASONING else text).split()))


def _twin(said: f.MessageSaid) -> str:
    """What is the same on every channel: a tool's own id, else the words."""
    if said.tool and said.tool.get("id"):
        return digest("tool", said.role, str(said.tool["id"]))
    return _words(said.role, said.text)


def _twin_of(message: Message) -> str:
    return _twin(f.MessageSaid(message.role, message.text, "", tool=message.tool))
