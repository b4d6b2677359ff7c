"""The demo: soft prompts against hard ones on the testbed, told and withheld, as sentences and as a report."""
