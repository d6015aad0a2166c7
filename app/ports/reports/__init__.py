"""What people may read: reports, never the base of a decision."""
