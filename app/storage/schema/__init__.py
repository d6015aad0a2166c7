"""Tables, columns and their types."""
