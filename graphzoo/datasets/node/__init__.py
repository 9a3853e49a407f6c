"""Graphs whose nodes are classified: the table of known ones, formats, own files, splits."""
