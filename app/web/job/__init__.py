"""The page of one job, part by part, and what its buttons do."""
