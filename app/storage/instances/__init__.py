"""Machines, launches, contacts and sweeps as rows."""
