"""What each family of verbs may use of `Keep`, said once. `Keep` has all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.session.summary import Summary
    from dreamkeep.verbs.families import Families


class Part:
    """Verbs of `Keep` that have one reason to change."""

    context: KeepContext
    families: Families

    if TYPE_CHECKING:

        def summary(self, session: str) -> Summary: ...

        def compress(self, *, everything: bool = False, least: int = 0) -> int: ...
