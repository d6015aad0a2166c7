"""The methods of `decide` that have a file of their own, and the values that they look at."""
