"""States and events of jobs, attempts and machines, with one complete table for each."""
