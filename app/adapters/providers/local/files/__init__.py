"""Settings and files of the local cloud."""
