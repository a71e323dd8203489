"""OpenCode. FORMAT.md describes its files."""

from dreamkeep.agents.contract import OWN_TITLE, Agent

AGENT = Agent(
    "opencode",
    "OpenCode",
    __name__,
    row_habits="row_habits",
    setup="setup",
    acp_names=("opencode",),
    ask_command=("env", 'OPENCODE_PERMISSION={"*": "deny"}', "opencode", "run", "--title", OWN_TITLE),
    tools={
        "shell": ("bash",),
        "edit": ("edit", "multiedit", "write", "patch", "apply_patch"),
        "plan": ("plan_exit",),
        "ask": ("question",),
        "todo": ("todowrite",),
    },
)
