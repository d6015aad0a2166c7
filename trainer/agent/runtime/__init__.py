"""Drives the rules on a real machine: threads, watchers, reports, power-off."""
