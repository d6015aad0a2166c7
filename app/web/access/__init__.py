"""Pages on which people sign in, and look after their sessions and keys."""
