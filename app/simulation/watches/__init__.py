"""What must hold in every simulated world."""
