"""What a mixture makes of held-out facts, how two runs compare, and how far a score can be trusted."""
