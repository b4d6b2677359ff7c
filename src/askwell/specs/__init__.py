"""Specs: the frozen, validated choices of a run. They hold no behaviour and import nothing heavy."""
