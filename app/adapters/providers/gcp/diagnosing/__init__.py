"""Whether a Google Cloud project is set up."""
