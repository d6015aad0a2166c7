"""What goes wrong in a simulated world, and who does it."""
