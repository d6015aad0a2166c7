"""Commands for notifications: channels, rules, deliveries."""
