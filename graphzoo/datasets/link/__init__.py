"""Graphs for link prediction: the table of data sets, own files, splits and negatives."""
