"""How much work is left, how fast it goes, how long a start takes, and what a spec would cost."""
