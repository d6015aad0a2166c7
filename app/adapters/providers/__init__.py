"""Clouds behind the provider port; each folder is imported only when configured."""
