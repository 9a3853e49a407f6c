"""Pictures of what a trained model attends to, made from its checkpoint and graph."""
