"""`graphzoo search` and `graphzoo compare`: settings and models chosen by validation, resumable."""
