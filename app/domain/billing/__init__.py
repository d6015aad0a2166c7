"""What machines and transfers cost, cumulative and exact, and the entries of the ledger."""
