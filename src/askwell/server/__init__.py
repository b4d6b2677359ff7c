"""The service: a page and an API over a folder of runs."""
