"""`lowtide demo`: one job through an interruption, its checks and its report."""
