"""The default backend: offline, few and certain."""
