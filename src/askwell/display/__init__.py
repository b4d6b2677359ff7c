"""How objects show themselves to people: summaries, frames, plots."""
