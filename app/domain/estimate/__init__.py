"""What a job would cost and when it would end, by simulated runs, and how accurate that was."""
