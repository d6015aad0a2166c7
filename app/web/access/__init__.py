"""Pages on which people come in, and look after their sessions and keys."""
