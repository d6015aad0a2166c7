"""Routes for agents on machines, and the memory that answers their steady reports."""
