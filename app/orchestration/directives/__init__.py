"""What agents are told: directives, and the memory that answers their steady reports."""
