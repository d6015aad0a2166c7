"""Keys, projects and sessions: who asks, and in which project."""
