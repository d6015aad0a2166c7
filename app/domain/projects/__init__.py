"""What a project allows its jobs, and what it adds to their specs."""
