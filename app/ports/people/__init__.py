"""Ports between Lowtide and people: who vouches for them, and what brings them messages."""
