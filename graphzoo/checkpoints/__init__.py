"""Read checkpoints of unknown origin safely, and check that they fit the model."""
