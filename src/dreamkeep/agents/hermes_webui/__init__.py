"""Hermes WebUI."""
