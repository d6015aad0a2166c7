"""Sentences about jobs and machines that pages and the command line have in common."""
