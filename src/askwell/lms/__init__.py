"""The frozen LM: tokenisation, families, batches, forward passes."""
