"""One world, one seed, or many seeds, from start to verdict."""
