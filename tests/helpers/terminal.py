"""What must never reach a terminal."""

from __future__ import annotations


def control_characters(text: str) -> list[str]:
    """Those that a terminal may obey: everything unprintable but line feeds and tabs."""
    return sorted({c for c in text if c not in "\n\t" and not c.isprintable()})
