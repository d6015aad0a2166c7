"""What every verb works with: ports, limits, the job under its lock, leases, timers."""
