"""Graphs for node classification: the table of data sets, file formats, own files and splits."""
