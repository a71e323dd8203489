"""Goose. FORMAT.md describes its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "goose",
    "Goose",
    __name__,
    row_habits="row_habits",
    acp_names=("goose",),
    tools={
        "shell": ("shell", "developer__shell"),
        "edit": ("edit", "write", "text_editor", "developer__text_editor"),
        "todo": ("todo__todo_write",),
    },
)
