"""Copilot CLI. FORMAT.md describes its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "copilot",
    "Copilot CLI",
    __name__,
    has_files_beside=True,
    acp_names=("copilot",),
    anchors=("/session-state/",),
    tools={
        "shell": ("bash", "powershell"),
        "edit": ("create", "edit", "str_replace", "str_replace_editor", "apply_patch"),
        "plan": ("exit_plan_mode", "submit_plan"),
        "ask": ("ask_user",),
        "todo": ("update_todo",),
    },
)
