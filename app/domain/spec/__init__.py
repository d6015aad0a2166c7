"""What a user asks for: the job spec, its fields, and how its text is read and refused."""
