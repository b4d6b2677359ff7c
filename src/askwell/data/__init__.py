"""Facts and templates: reading, splitting, auditing, and the published sets."""
