"""Codex CLI."""
