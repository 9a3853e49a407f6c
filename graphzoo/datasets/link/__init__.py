"""Graphs whose links are predicted: the table of known ones, own files, splits, negatives."""
