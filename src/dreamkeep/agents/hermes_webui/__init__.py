"""Hermes WebUI. FORMAT.md describes its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "hermes-webui",
    "Hermes WebUI",
    __name__,
    writer="writer",
    recovery="recovery",
    own_audit=frozenset(("main", "backup")),
    shrink_marks=(
        *("clear_generation", "intentional_shrink_generation", "truncation_watermark", "compression_anchor_message_key"),
    ),
)
