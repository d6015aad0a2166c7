"""Costs are booked, compared and closed, and budgets are kept."""
