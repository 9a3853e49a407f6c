"""Every kind of attempt of `benchmarks.hostile_campaign`, with its weight in the draw.

A kind is a function of a random generator and the folder of good files. It writes files into the current
folder, which is empty, and returns a command, or a call of the library.
"""

from __future__ import annotations

from benchmarks.hostile.attempt import Kind
from benchmarks.hostile.inputs import configuration, data, other_commands, queries
from benchmarks.hostile.runs import checkpoint_bytes, checkpoint_values, names, run_folder
from benchmarks.hostile.surroundings import options, streams, surroundings

KINDS: dict[str, tuple[Kind, float]] = {
    "values of a checkpoint": (checkpoint_values, 18),
    "bytes of a checkpoint": (checkpoint_bytes, 12),
    "files of a run": (run_folder, 14),
    "facts": (data("kg"), 11),
    "tables of nodes and edges": (data("nodes"), 9),
    "lists of links": (data("links"), 6),
    "options": (options, 8),
    "configuration": (configuration, 5),
    "queries and targets": (queries, 8),
    "streams": (streams, 4),
    "names": (names, 5),
    "surroundings": (surroundings, 4),
    "rows, searches, panels": (other_commands, 6),
}
"""Every kind of attempt with its weight in the draw."""
