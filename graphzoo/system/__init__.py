"""Helpers for memory, files, processes, tensors and the terminal, which do not depend on graphs."""
