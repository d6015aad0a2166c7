"""One optimizer step and what it is made of: model, loss, optimizer, schedule, memory."""
