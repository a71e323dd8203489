"""pi. FORMAT.md describes its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "pi",
    "pi",
    __name__,
    tools={
        "shell": ("bash",),
        "edit": ("edit", "write"),
    },
)
