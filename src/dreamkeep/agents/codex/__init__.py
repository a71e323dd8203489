"""Codex CLI. FORMAT.md: what is known of its files."""

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
)
