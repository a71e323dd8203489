"""Messages of a document that was captured with secrets masked, against the document as it is. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dreamkeep.memory.hidden import Hidden
from dreamkeep.memory.masking import is_masked, mask_data

M = TypeVar("M", bound=Mapping[str, Any])


def gone(lost: Sequence[M], now: Sequence[Mapping[str, Any]]) -> list[M]:
    """Of messages that are not there as they were captured, those that differ by more than masks."""
    written = [_bytes(one) for one in lost]
    if not any(map(is_masked, written)):
        return list(lost)
    hidden = Hidden(written)
    # What one message betrays was masked in all.
    masked = [_bytes(one) for one in mask_data(list(now))]
    there = {kept for one, own in zip(now, masked, strict=True) if (kept := hidden.find(_bytes(one), own)) is not None}
    return [one for one, data in zip(lost, written, strict=True) if data not in there]


def _bytes(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
