"""Kimi Code. FORMAT.md describes its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "kimi",
    "Kimi Code",
    __name__,
    acp_names=("kimi",),
    anchors=("/sessions/",),
    tools={
        "shell": ("bash", "shell"),
        "edit": ("writefile", "strreplacefile"),
        "plan": ("exitplanmode",),
        "ask": ("askuserquestion",),
        "todo": ("settodolist", "todolist"),
    },
)
