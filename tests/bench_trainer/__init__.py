"""`make bench-trainer`: what the trainer reaches, beside plain baselines of the same minutes."""
