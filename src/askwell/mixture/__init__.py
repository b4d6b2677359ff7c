"""Mixtures of prompts over a frozen LM."""
