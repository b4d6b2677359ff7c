"""Tables, figures and pages made from runs."""
