"""The catalog of names: presets and their files, tasks, shipped weights, and classes that may be imported."""
