"""What people set for new machines: freezes, limits, monthly budgets, prices of contracts."""
