"""From the words of a command to a running Trainer."""
