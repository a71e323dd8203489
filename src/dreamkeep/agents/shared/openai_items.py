"""A session of the OpenAI Agents SDK: items of the Responses API, as `capture/items.py` journals them.

    items.added    {"run": id, "owner": lock, "items": [item, …], "instead"?: true}   the items of one call, whole or not at all
    items.popped   {"of": key}                                                        one item is taken back
    items.cleared  {}                                                                 the talk begins anew; old messages stay
    run.over       {"run": id, "state": how, "reason"?: why}                          a run ended without an answer

An item's key is its event's id, a dot, and its number. A user's message begins a turn, named by its key; further user messages
before anything else belong to the same turn. A run's turn is completed when a message of the model is the last item of a call;
otherwise its tool calls follow. The items of an unknown run (one that was approved in another process) continue the turn before.

With `instead`, or in a call with a `compaction` right after a clearing, the items repeat the talk for the model, shortened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.codex.items import words_in
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import arguments, items, table, text
from dreamkeep.event import Kind

_RUNS_REMEMBERED = 8
_ROLES = {"user": f.USER, "assistant": f.ASSISTANT, "system": f.SYSTEM, "developer": f.SYSTEM}
#: The members with a call's input, for the many kinds of tools.
_ASKED = ("arguments", "input", "action", "operation", "queries", "code", "prompt")
#: How the SDK tells the model that a tool of ours raised.
_RAISED = "An error occurred while running the tool"
_NO_ANSWER = "the run ended without an answer"

Item = Mapping[str, Any]


def key_of(event: str, number: int) -> str:
    return f"{event}.{number}"


def is_prompt(item: Item) -> bool:
    return item.get("role") == f.USER and _is_message(item)


def is_answer(item: Item) -> bool:
    return item.get("role") == f.ASSISTANT and _is_message(item)


def is_result(item: Item) -> bool:
    return text(item.get("type")).endswith("_output")


def _is_message(item: Item) -> bool:
    return item.get("type") in (None, "message")


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterator[Fact]:
        """`name` is the event's kind, `source` its id."""
        body, at = table(record.data), record.at or None
        if record.name == Kind.ITEMS_ADDED:
            yield from self._added(body, record.source, at)
        elif record.name == Kind.ITEMS_POPPED:
            yield from self._popped(text(body.get("of")), at)
        elif record.name == Kind.ITEMS_CLEARED:
            yield f.Boundary("clear", at, record.source)
        elif record.name == Kind.RUN_OVER:
            yield from self._over(text(body.get("run")), text(body.get("state")), text(body.get("reason")), at)
        self.state["cleared"] = record.name == Kind.ITEMS_CLEARED

    def _added(self, body: Item, event: str, at: str | None) -> Iterator[Fact]:
        added = [(key_of(event, n), table(item)) for n, item in enumerate(items(body.get("items")))]
        squeezed = any(item.get("type") == "compaction" for _, item in added)
        if body.get("instead") or (self.state.get("cleared") and squeezed):
            if squeezed:
                yield f.Signal("structured", "completed", at, event)
            for key, item in added:
                yield from _make_messages(item, key, at, "", f.COMPACTED)
            return
        run = text(body.get("run"))
        turn, known = self._turn(run)
        for key, item in added:
            if is_prompt(item) and (not known or turn.get("answered", True)):
                yield from _left(turn, at) if known else ()
                turn, known = self._begin(run, key), True
                yield f.TurnBegan(key, words_in(item.get("content")), at, key)
            elif text(item.get("type")) not in ("", "message") or is_answer(item):
                turn["answered"], turn["last"] = True, _last(item)
            yield from _make_messages(item, key, at, text(turn.get("turn")), "")
        yield from _settled(turn, at)

    def _turn(self, run: str) -> tuple[dict[str, Any], bool]:
        """The state of a run's turn, else of the turn that began last; and whether it is that run's own."""
        runs: dict[str, dict[str, Any]] = self.state.setdefault("runs", {})
        return (runs[run], True) if run in runs else (runs[next(reversed(runs))] if runs else {}, False)

    def _begin(self, run: str, key: str) -> dict[str, Any]:
        runs: dict[str, dict[str, Any]] = self.state["runs"]
        runs.pop(run, None)
        runs[run] = {"turn": key, "answered": False, "last": "prompt"}
        while len(runs) > _RUNS_REMEMBERED:
            del runs[next(iter(runs))]
        return runs[run]

    def _popped(self, key: str, at: str | None) -> Iterator[Fact]:
        yield f.MessagesRewound(at, key, only=True)
        runs: dict[str, dict[str, Any]] = self.state.get("runs", {})
        for run, turn in list(runs.items()):
            if turn.get("turn") == key:
                runs[run] = {}
                yield f.TurnSettled(key, "cancelled", at, "its prompt was taken back")

    def _over(self, run: str, state: str, reason: str, at: str | None) -> Iterator[Fact]:
        turn = self.state.get("runs", {}).get(run, {})
        if turn.get("turn") and not turn.get("done"):
            yield f.TurnSettled(turn["turn"], state, at, reason or (_NO_ANSWER if state == "interrupted" else None))


def _last(item: Item) -> str:
    return "answer" if is_answer(item) else "work"


def _left(turn: dict[str, Any], at: str | None) -> Iterator[Fact]:
    """The user says something new: end the turn before."""
    if turn.get("turn") and not turn.get("done"):
        yield from (
            _settled(turn, at) if turn["last"] == "answer" else [f.TurnSettled(turn["turn"], "interrupted", at, _NO_ANSWER)]
        )


def _settled(turn: dict[str, Any], at: str | None) -> Iterator[Fact]:
    done = turn.get("last") == "answer"
    if turn.get("turn") and done != bool(turn.get("done")):
        turn["done"] = done
        yield f.TurnSettled(turn["turn"], "completed" if done else "started", at)


def _make_messages(item: Item, key: str, at: str | None, turn: str, mark: str) -> Iterator[Fact]:
    kind = text(item.get("type"))
    if _is_message(item) and item.get("role"):
        role = _ROLES.get(text(item.get("role")), f.SYSTEM)
        yield f.MessageSaid(role, words_in(item.get("content")), key, at, turn, mark=mark)
    elif kind == "reasoning":
        words = words_in([*items(item.get("summary")), *items(item.get("content"))])
        if words:
            yield f.MessageSaid(f.REASONING, words, key, at, turn, mark=mark)
    elif kind.endswith("_call"):
        yield from _call(item, kind, key, at, turn, mark)
    elif is_result(item):
        words, known = _result(item.get("output"))
        yield f.MessageSaid(f.TOOL, words, key, at, turn, {"id": _id(item), **known}, mark)
    elif kind not in ("compaction", "item_reference"):
        yield f.UnknownRecord(kind or "item")


def _call(item: Item, kind: str, key: str, at: str | None, turn: str, mark: str) -> Iterator[Fact]:
    asked = next((arguments(item[name]) for name in _ASKED if item.get(name) is not None), None)
    name = text(item.get("name")) or kind.removesuffix("_call")
    yield f.MessageSaid(f.ASSISTANT, "", key, at, turn, {"id": _id(item), "name": name, "input": asked}, mark)
    # Tools that the model's provider runs have their result in the call.
    output, problem = item.get("output"), item.get("error")
    if kind != "function_call" and (output is not None or problem):
        words, known = _result(output if output is not None else problem)
        tool = {"id": _id(item), "name": name, **known, **({"error": True} if problem else {})}
        yield f.MessageSaid(f.TOOL, words, f"{key}.result", at, turn, tool, mark, key)


def _id(item: Item) -> str:
    return text(item.get("call_id")) or text(item.get("id"))


def _result(output: object) -> tuple[str, dict[str, Any]]:
    """The text, and for a shell how it ended."""
    if isinstance(output, str):
        return output, {"error": True} if output.startswith(_RAISED) else {}
    words, codes = [], []
    for one in [output] if isinstance(output, Mapping) else items(output):
        part = table(one)
        words += [words_in([part]), text(part.get("stdout")), text(part.get("stderr")), text(part.get("message"))]
        code = table(part.get("outcome")).get("exit_code")
        codes += [code] if isinstance(code, int) and not isinstance(code, bool) else []
    failed = next((code for code in codes if code), None)
    code = failed if failed is not None else codes[-1] if codes else None
    return "\n".join(filter(None, words)), {} if code is None else {"exit_code": code, "error": code != 0}
