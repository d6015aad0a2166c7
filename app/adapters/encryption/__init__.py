"""AES-256-GCM for values in the database, and the file of the keys that it is done with."""
