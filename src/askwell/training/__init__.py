"""Tuning a mixture on the facts of a relation."""
