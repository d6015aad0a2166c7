"""The rented machine: its settings, clocks, files, processes, logs and calls."""
