"""Commands that run or check the control plane, and the back-test."""
