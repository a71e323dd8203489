"""Hermes writes a session anew (/retry, /undo, /compress in a chat, an ACP client): it deletes all rows, or all active ones, and
inserts what it keeps again; `message_count` says how many. It never deletes only some of the active rows. Rewound or compacted
rows stay, with a flag. Pure.
"""

from __future__ import annotations

from dreamkeep.agents.shared.row_habits import Facts, Row, RowGap, RowWords, digest_of, text_in


class HermesHabits:
    edits = False
    begins = ""
    columns = ("content", "tool_calls", "reasoning", "reasoning_content")

    def read_words(self, table: str, row: Row) -> RowWords | None:
        if table != "messages":
            return None
        words = tuple(text_in(row.get(name)) for name in self.columns)
        active = row.get("active", 1)
        live = active is None or bool(active)
        same = digest_of(row.get("role"), words[0], row.get("tool_call_id"), words[1])
        part, squeezed = str(row.get("session_id")), bool(row.get("compacted"))
        return RowWords(f"messages/{row.get('id')}", same, words, (row.get("id"),), row.get("timestamp"), part, live, squeezed)

    def facts(self, table: str, row: Row) -> Facts:
        return {str(row.get("id")): row.get("message_count")} if table == "sessions" else {}

    def meant(self, gone: RowWords, gap: RowGap) -> bool:
        """Whether the session was written anew: no live row stayed, and there are as many rows as Hermes counts."""
        if gone.part in gap.live:
            return False
        there, counted = gap.many.get(gone.part, 0), gap.facts.get(gone.part)
        return there >= counted if isinstance(counted, int) else bool(there)


HABITS = HermesHabits()
