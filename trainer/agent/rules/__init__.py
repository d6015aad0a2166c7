"""The supervisor: pure rules from observations to actions."""
