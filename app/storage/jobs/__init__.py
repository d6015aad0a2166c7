"""Jobs, attempts, their history, decisions and estimates as rows."""
