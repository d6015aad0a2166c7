"""Who may do what: keys, roles, and the one function that decides."""
