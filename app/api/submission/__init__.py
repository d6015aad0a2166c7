"""What is checked before a spec becomes a job: its text, its places, its working folder."""
