"""The deployment as a whole: unknown machines, leftovers, checks of its set-up, its end."""
