"""Repair: a plan that mends what is safe, its execution, and its undo."""
