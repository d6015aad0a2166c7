"""Faults of a GPU, and who tells of them."""
