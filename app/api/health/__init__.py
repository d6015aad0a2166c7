"""Whether this process can serve, and its figures for monitoring."""
