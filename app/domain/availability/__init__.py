"""How long spot machines live and how long a pool stays empty: models and observations."""
