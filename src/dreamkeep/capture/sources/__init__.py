"""One source: its bytes, its rows, what was captured of it, and how it comes back."""
