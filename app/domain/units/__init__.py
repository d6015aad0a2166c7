"""Exact numbers and how people write them: money, shares, durations; and errors with a sentence."""
