"""Virtual time, seeded randomness, the event loop, and the database of a simulation."""
