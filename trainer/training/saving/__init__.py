"""Checkpoints of a run: when they are due, how they are taken, and going on from one."""
