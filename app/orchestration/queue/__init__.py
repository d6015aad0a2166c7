"""The queue: jobs are submitted to it, and claimed from it with their machines."""
