"""Prices and placement scores of AWS."""
