"""The list of jobs: its search, its rows, and commands to many jobs at once."""
