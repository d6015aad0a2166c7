"""Routes of notifications: channels, rules, deliveries."""
