"""How requests are received and answered: limits, turns, sign-in, errors, JSON."""
