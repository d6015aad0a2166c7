"""Which pools a gang may be rented in, which size it gets, and when a move repays."""
