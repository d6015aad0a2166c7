"""Object stores behind the port: a local folder, S3 and Google Cloud Storage, all by obstore."""
