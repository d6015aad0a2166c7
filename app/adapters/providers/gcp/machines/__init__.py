"""Machines of Google Cloud: launch, preemptions, release, leftovers."""
