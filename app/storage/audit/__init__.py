"""Rows of what people have done, seals over them, and what is read of both."""
