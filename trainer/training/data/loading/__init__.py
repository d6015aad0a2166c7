"""How samples reach the model: order, batches, transforms, workers."""
