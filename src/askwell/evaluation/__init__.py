"""How a mixture answers held-out facts, how two runs compare, and how far a score can be trusted."""
