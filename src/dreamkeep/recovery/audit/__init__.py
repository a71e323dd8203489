"""Audit: finds everything that is wrong and changes nothing."""
