"""What a run tells of itself: progress, goodput, metrics, profiles."""
