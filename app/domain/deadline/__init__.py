"""Wait, spot or on-demand: the choice of least expected cost that still ends in time."""
