"""How fast kinds of machines and sizes of gangs do a job's work: measured and expected."""
