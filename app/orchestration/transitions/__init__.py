"""Changes of a running gang: another market, another pool, another size, a deadline."""
