"""Prices and capacity history of Google Cloud."""
