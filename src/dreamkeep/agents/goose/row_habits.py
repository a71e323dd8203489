"""Goose: a compaction deletes all rows and inserts them again (same `message_id`). When a prompt is edited, it and everything
after it is deleted, and the new prompt follows. /clear deletes all rows and reports 0 tokens. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from dreamkeep.agents.shared.row_habits import Facts, Row, RowGap, RowWords, digest_of, json_in, text_in, to_json

_CLEARED = "cleared"


class GooseHabits:
    edits = False
    begins = "sessions"
    columns: tuple[str, ...] = ()

    def read_words(self, table: str, row: Row) -> RowWords | None:
        if table != "messages":
            return None
        blocks = json_in(row.get("content_json"))
        words = "\n".join(filter(None, map(_block, blocks))) if isinstance(blocks, list) else ""
        at = row.get("created_timestamp")
        same = str(row.get("message_id") or digest_of(row.get("role"), words, at))
        return RowWords(f"messages/{row.get('id')}", same, (words,), (row.get("id"),), at)

    def facts(self, table: str, row: Row) -> Facts:
        return {_CLEARED: row.get("total_tokens") == 0} if table == "sessions" else {}

    def meant(self, gone: RowWords, gap: RowGap) -> bool:
        # No two messages have one id: whenever that row came, it is this message.
        return gone.same in gap.known_rows or gap.ends_with(gone) or (not gap.now and bool(gap.facts.get(_CLEARED)))


def _block(block: object) -> str:
    """A block's words, without what a client may add to it later."""
    if not isinstance(block, Mapping):
        return ""
    call, result = block.get("toolCall"), block.get("toolResult")
    call = call.get("value", call) if isinstance(call, Mapping) else None
    result = result.get("value", result) if isinstance(result, Mapping) else None
    told = [text_in(block.get(name)) for name in ("text", "thinking", "reasoning", "msg", "data")]
    if isinstance(call, Mapping):
        told += [text_in(block.get("id")), text_in(call.get("name")), to_json(call.get("arguments"))]
    if result is not None:
        content = result.get("content", result) if isinstance(result, Mapping) else result
        told += [text_in(block.get("id")), to_json(content)]
    return "\n".join(filter(None, told))


HABITS = GooseHabits()
