"""What pages and the API read: jobs, lists, machines, prices, sessions."""
