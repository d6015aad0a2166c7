"""Prices, and the past of pools, as clouds tell them."""
