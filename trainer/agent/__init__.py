"""What runs beside the trainer on a rented machine: supervision, notices, checkpoints."""
