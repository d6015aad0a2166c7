"""Commands about machines, offers, sweeps and costs."""
