"""Rules about the deployment itself: credentials, set-up, unknown machines, leftovers."""
