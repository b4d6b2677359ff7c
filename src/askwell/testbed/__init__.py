"""How the testbed's text and LMs were made."""
