"""Compactions and the segments between them. Pure folds."""
