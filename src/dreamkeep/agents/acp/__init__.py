"""ACP, the Agent Client Protocol: the tap's frames."""
