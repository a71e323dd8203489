"""Snapshots: the whole keep as one file, out, checked, and in again."""
