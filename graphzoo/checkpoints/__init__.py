"""Reading checkpoints without trusting them: what may be loaded, and whether it fits the model built."""
