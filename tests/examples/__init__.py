"""Examples whose framework is too large for every test run; each has a make target of its own."""
