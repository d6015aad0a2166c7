"""What can be rented: pools, offers, GPUs, machine types and their prices over time."""
