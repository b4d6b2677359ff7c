"""A small world of real facts, and a text that tells most of them and withholds the rest."""
