"""One transaction: engine, prepared statements, records, and the revision of the schema."""
