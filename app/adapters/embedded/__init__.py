"""PostgreSQL and Valkey run by Lowtide itself, and the supervisor of `lowtide up`.

Here: finding the binaries, starting and stopping the two servers on loopback, and keeping a
small set of child processes alive in the foreground. Not here: what those processes do, the
schema, and the settings (everything comes in as plain parameters).
"""
