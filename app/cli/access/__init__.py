"""Commands about keys and projects."""
