"""Routes for what people have done."""
