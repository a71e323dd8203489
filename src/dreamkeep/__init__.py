"""dreamkeep: memory for AI agents.

    agents ─► capture ─► journal ─► index ─► recall ─► surfaces (CLI, MCP, HTTP, web page, Python)
                           │  ▲                ▲
                           ▼  │                │
                        recovery    dream ─► memory (notes, MEMORY.md)

The journal is the truth; everything else can be deleted and rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamkeep.keep import Keep

__version__ = "0.1.0"
__all__ = ["Keep", "__version__"]


def __getattr__(name: str) -> object:
    # Loaded when first asked for: a hook that imports the package must not pay for what it does not use.
    if name == "Keep":
        from dreamkeep.keep import Keep

        return Keep
    raise AttributeError(f"module 'dreamkeep' has no attribute {name!r}")
