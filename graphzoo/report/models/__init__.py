"""Pictures of the attention of a trained model, from its checkpoint and graph."""
