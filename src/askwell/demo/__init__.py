"""The demo on the testbed."""
