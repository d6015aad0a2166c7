"""The ranks together: joining, agreeing, sharing a model, leaving."""
