"""Compressing what nobody will write again. Wiring, no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dreamkeep.errors import from_os

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext


def compress_cold(context: KeepContext, *, everything: bool = False, least: int = 0) -> int:
    """Cold parts as zstd: those that nobody will write again, and whole journals that nobody has written to for
    `retention.compress_days` (or all, now, if their last part is of `least` bytes). How many there were."""
    from dreamkeep.index.build import journals
    from dreamkeep.journal import parts

    context.settle_deletions()
    done = 0
    before = context.host.now() - int(context.config["retention.compress_days"] * 86_400e9)
    for name in [*journals(context.host, context.root), "journal/keep"]:
        folder = f"{context.root}/{name}"
        try:
            numbers = parts.numbers(context.host, folder)
            done += sum(parts.compress(context.host, folder, part) for part in numbers[:-1])
            hot = context.host.stat(f"{folder}/{parts.name(numbers[-1])}") if numbers else None
            if hot and name != "journal/keep" and ((everything and hot.size >= least) or hot.mtime_ns < before):
                done += parts.compress(context.host, folder, numbers[-1], last=True)
        except OSError as problem:
            raise from_os(problem, "compressing", folder) from problem
    return done
