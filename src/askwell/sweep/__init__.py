"""Sweeps: a grid of runs, planned, done by an engine, and kept in a store."""
