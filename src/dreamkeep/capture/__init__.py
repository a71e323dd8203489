"""Agents' words become events in the journal. Nothing here touches the index."""
