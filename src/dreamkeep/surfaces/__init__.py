"""Parse, call one verb of `app`, print."""
