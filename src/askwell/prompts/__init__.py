"""The prompts of a mixture: what the LM reads around x and y, how much each prompt weighs, and what is tuned."""
