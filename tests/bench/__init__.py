"""`make bench`: what Lowtide costs, beside plain baselines measured in the same minutes."""
