"""Helpers for memory, files, processes and the terminal, which do not depend on graphs."""
