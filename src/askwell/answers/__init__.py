"""What counts as an answer, in three ways behind one interface: one token, candidates, or any length."""
