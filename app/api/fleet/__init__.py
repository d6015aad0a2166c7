"""Routes about machines, sweeps and costs."""
