"""What the local cloud rents out, and its recorded prices."""
