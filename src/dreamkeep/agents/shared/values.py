"""Times, texts and ids out of data that may be anything. Pure; nothing here raises on any input."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?$")
_MS_FROM = 10**11  # seconds since 1970 stay below this for three thousand years


def parse_time(value: object) -> str | None:
    """RFC 3339 in UTC with microseconds, from ISO text or from (milli)seconds since 1970; None if it is no time."""
    try:
        if isinstance(value, str):
            return _when_text(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        seconds = value / 1000 if abs(value) >= _MS_FROM else value
        return _shown(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def _when_text(text: str) -> str | None:
    found = _ISO.match(text.strip())
    if not found:
        return None
    *parts, fraction, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    year, month, day, hour, minute, second = parts
    micros = (fraction or "").ljust(6, "0")[:6]
    return _shown(datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}:{second}.{micros}{zone}").astimezone(UTC))


def _shown(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def text(value: object) -> str:
    """A str, or ""."""
    return value if isinstance(value, str) else ""


def table(value: object) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def count(value: object) -> int | None:
    """A number from 0 on, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def from_json(value: object) -> Any:
    """A text parsed as JSON; an object or a list as it is; None for anything else."""
    if not isinstance(value, str):
        return value if isinstance(value, (list, dict)) else None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def arguments(given: object) -> object:
    """A tool call's arguments: some agents write JSON into a text. If it is no JSON, it stays as it is."""
    if not isinstance(given, str) or given[:1] not in "{[":
        return given
    found = from_json(given)
    return given if found is None else found


def digest(*parts: object) -> str:
    """A short key made of the content, for things without an id of their own."""
    whole = sha256()
    for part in parts:
        data = (part if isinstance(part, str) else repr(part)).encode("utf-8", "surrogatepass")
        whole.update(b"%d:" % len(data))
        whole.update(data)
    return whole.hexdigest()[:24]
