"""Routes about jobs: submit, list, show, command, explain, estimate."""
