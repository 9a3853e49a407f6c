"""Code that several tests use: small data, reference implementations, the command in this process."""
