"""What soft prompts are compared with, as mixtures that the same evaluation scores."""
