"""The ledger, its rollup, budgets, and the cost reports that are made of them."""
