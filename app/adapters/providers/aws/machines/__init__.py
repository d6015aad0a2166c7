"""EC2 machines: launch, types, quotas, release, leftovers."""
