"""JSON values, and texts of them as a person might have typed them."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import strategies as st

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8) | st.just("// no /* comment */"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)

json_objects = st.dictionaries(st.text(max_size=6).filter(lambda k: k not in ("hooks", "mcp")), json_values, max_size=4)


def json_text(value: Any, chance: random.Random, comments: bool, indent: str = "", unit: str = "  ", eol: str = "\n") -> str:
    """A value as somebody might have typed it: on one line or many, with comments and commas wherever they may be."""

    def gap() -> str:
        if not comments:
            return chance.choice(["", "", " "])
        return chance.choice(["", "", " ", " /* , } ] */ ", f"// it's {{ \" ,{eol}{indent}", eol])

    if not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)
    inner = indent + unit
    many = chance.random() < 0.6
    start = eol + inner if many else ""
    entries = []
    pairs = value.items() if isinstance(value, dict) else ((None, v) for v in value)
    for key, entry in pairs:
        text = json_text(entry, chance, comments, inner, unit, eol)
        entries.append(text if key is None else f"{json.dumps(key)}{gap()}:{gap()}{text}")
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if not entries:
        return opening + gap() + closing
    last = chance.choice([",", ""]) if comments else ""
    body = ",".join(f"{gap()}{start}{entry}{gap()}" for entry in entries)
    return opening + body + last + gap() + (eol + indent if many else "") + closing
