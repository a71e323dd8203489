"""Restore: gives a session back to its agent, or converts it for another."""
