"""What a run is on disk, and how its files are read. Nothing here imports torch."""
