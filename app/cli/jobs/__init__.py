"""Commands about jobs: submit, show, follow, stop, estimate, explain, download."""
