"""What the machine offers: memory, files, processes, the terminal. Nothing here knows a graph."""
