"""Copilot CLI."""
