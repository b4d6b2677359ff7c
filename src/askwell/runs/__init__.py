"""Runs: from a spec to a folder, one at a time or as a sweep, and the store that keeps them."""
