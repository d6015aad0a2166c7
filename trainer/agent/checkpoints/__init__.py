"""Checkpoints between the machine and the object store, with the lease and fences."""
