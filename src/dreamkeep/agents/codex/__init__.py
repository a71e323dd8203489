"""Codex CLI. FORMAT.md describes its files."""

from dreamkeep.agents.contract import SESSION, Agent

AGENT = Agent(
    "codex",
    "Codex CLI",
    __name__,
    writer="writer",
    setup="setup",
    has_files_beside=True,
    has_shared_files=True,
    acp_names=("codex",),
    home_variables=("CODEX_HOME",),
    anchors=("/archived_sessions/", "/sessions/"),
    resume_command=("codex", "resume", SESSION),
    ask_command=("codex", "exec", "--ephemeral", "--skip-git-repo-check", "--sandbox", "read-only", "--color", "never", "-"),
    instruction_files=("AGENTS.md",),
    home_instruction_file=".codex/AGENTS.md",
    tools={
        "shell": (
            "shell",
            "local_shell",
            "local_shell_call",
            "shell_command",
            "exec_command",
            "exec",
            "container.exec",
            "unified_exec",
        ),
        "edit": ("apply_patch",),
        "ask": ("request_user_input",),
        "todo": ("update_plan",),
    },
)
