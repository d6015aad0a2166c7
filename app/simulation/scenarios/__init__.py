"""Named worlds in which one thing goes wrong."""
