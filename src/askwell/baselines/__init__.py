"""What soft prompts are compared with, scored through the same evaluation. `named` is the table of them."""
