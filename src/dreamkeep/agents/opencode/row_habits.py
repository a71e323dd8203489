"""OpenCode: an event reports each removal. In versions without events, reverted messages are deleted when the next prompt comes.
Parts are rewritten as they grow, so only a blanked one is a loss. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from dreamkeep.agents.shared.row_habits import Facts, Row, RowGap, RowWords, json_in, text_in, to_json

_EVENTS = "events"


class OpenCodeHabits:
    edits = True
    begins = ""
    columns: tuple[str, ...] = ()

    def read_words(self, table: str, row: Row) -> RowWords | None:
        if table not in ("message", "part"):
            return None
        key, data = str(row.get("id")), json_in(row.get("data"))
        data = data if isinstance(data, Mapping) else {}
        message = key if table == "message" else str(row.get("message_id"))
        words = (text_in(data.get("role")), "", "") if table == "message" else _part(data)
        place = (message,) if table == "message" else (message, key)
        return RowWords(f"{table}/{key}", f"{table}/{key}", words, place, row.get("time_created"), f"message/{message}")

    def facts(self, table: str, row: Row) -> Facts:
        if table != "event":
            return {}
        kind, data = str(row.get("type")), json_in(row.get("data"))
        if not isinstance(data, Mapping) or ".removed" not in kind:
            return {_EVENTS: True}
        gone = f"part/{data.get('partID')}" if kind.startswith("message.part.") else f"message/{data.get('messageID')}"
        return {_EVENTS: True, gone: True}

    def meant(self, gone: RowWords, gap: RowGap) -> bool:
        if gap.facts.get(_EVENTS):
            return bool(gap.facts.get(gone.key) or gap.facts.get(gone.part))
        return gap.ends_with(gone)


def _part(data: Row) -> tuple[str, str, str]:
    kind = text_in(data.get("type"))
    if kind != "tool":
        return kind, text_in(data.get("text")), ""
    state = data.get("state")
    state = state if isinstance(state, Mapping) else {}
    time = state.get("time")
    if isinstance(time, Mapping) and time.get("compacted"):
        return kind, to_json(state.get("input")), "compacted"
    return kind, to_json(state.get("input")), to_json(state.get("output") or state.get("error") or state.get("content"))


HABITS = OpenCodeHabits()
