"""A gang from its first machine to its end: fill, shrink, move, lose, drain, release."""
