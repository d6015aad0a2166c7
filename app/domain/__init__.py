"""Pure rules: values in, values out. No I/O, no clock, no randomness."""
