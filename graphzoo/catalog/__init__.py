"""What has a name: presets, the files behind them, tasks, and the classes that may be imported."""
