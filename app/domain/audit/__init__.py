"""What people have done: the row of an action, its digest, and the seals over rows."""
