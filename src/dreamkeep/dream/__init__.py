"""An offline run over finished sessions: what was missed in them (backfill), and what to remember of it (consolidate)."""
