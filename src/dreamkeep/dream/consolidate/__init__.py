"""Insights become notes, and notes of earlier sessions are kept in step."""
