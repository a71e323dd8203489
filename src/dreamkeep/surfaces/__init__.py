"""Parse, call one verb of `Keep`, print."""
