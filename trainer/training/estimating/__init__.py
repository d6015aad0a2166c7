"""What a run will need, by formula and by a few real steps."""
