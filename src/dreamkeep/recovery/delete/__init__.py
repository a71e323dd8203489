"""Delete: a session and every word of it."""
