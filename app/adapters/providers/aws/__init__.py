"""Amazon EC2 as a provider: machines, prices, quotas and interruption events, through boto3."""
