"""What agents ask and tell: registration, reports, facts, logs, directives, silence."""
