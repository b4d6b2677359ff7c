"""What tests are made of: tiny LMs, small relations, outcomes, stores and sweeps."""
