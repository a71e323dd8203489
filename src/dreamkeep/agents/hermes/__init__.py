"""Hermes. FORMAT.md describes its files."""

from dreamkeep.agents.contract import SESSION, Agent

AGENT = Agent(
    "hermes",
    "Hermes",
    __name__,
    writer="writer",
    row_habits="row_habits",
    setup="setup",
    recovery="recovery",
    acp_names=("hermes",),
    renews_acp_ids=True,
    unlike_tool_ids=True,
    home_variables=("HERMES_HOME",),
    anchors=("/state.db",),
    resume_command=("hermes", "--resume", SESSION),
    restores_rows=True,
    deleted_by="hermes-webui",
    tools={
        "shell": ("terminal", "process"),
        "edit": ("write_file", "patch"),
        "ask": ("clarify",),
        "todo": ("todo",),
    },
)
