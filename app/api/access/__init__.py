"""Routes for keys and projects."""
