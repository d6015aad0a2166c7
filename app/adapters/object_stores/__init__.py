"""Object stores behind the port: a local folder now, the clouds' stores when they are set up."""
