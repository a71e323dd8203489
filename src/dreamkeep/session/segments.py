"""Segments: the stretches of a session between context boundaries. Pure.

A session in which no boundary was journaled is one segment. (Boundaries are journaled by capture, which comes next.)
"""

from __future__ import annotations

from typing import NamedTuple


class Segment(NamedTuple):
    id: str
    opened_seq: int
    closed_seq: int | None
    end_reason: str | None
    precision: str


def segments(session_id: str, *, ended_seq: int | None) -> list[Segment]:
    """`ended_seq`: the last seq of an ended session; None while it goes on."""
    reason = "ended" if ended_seq is not None else None
    return [Segment(f"{session_id}#1", 1, ended_seq, reason, "exact")]
