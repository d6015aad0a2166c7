"""Whether an AWS account is set up."""
