"""Offers, prices, the past of pools and transfers as rows."""
