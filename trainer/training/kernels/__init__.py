"""Number formats, compilation and the count of operations."""
