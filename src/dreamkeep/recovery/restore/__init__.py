"""Restore: a session back to its agent, or converted for another."""
