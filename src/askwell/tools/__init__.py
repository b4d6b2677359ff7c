"""Mixtures, relations and runs in other tools: the lm-evaluation-harness, and Inspect."""
