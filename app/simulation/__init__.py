"""The production controllers on a real database under a virtual clock; see `run_seed`."""
