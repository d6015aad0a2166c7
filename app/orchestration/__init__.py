"""One verb a file: decides with the domain, acts through the ports."""
