"""Charts of a job: its timeline, prices and metrics."""
