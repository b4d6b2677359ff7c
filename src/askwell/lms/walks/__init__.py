"""Layer walks: the layers of well-known public models, computed row by row, without padding and without idle positions.

A walk uses the public model's own modules and weights. It is chosen by the model's exact class and is used only if it
gives what the public model gives; every other model runs as a whole, with hooks.
"""
