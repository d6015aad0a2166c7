"""Making, changing and ending keys and projects."""
