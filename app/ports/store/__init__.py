"""What the rules may ask of the store, one repository per noun, in one unit of work."""
