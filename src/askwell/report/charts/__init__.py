"""Charts: each file draws one kind, as SVG text that can stand alone or in a page."""
