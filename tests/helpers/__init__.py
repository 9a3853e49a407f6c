"""What tests share: small data, references, the command in this process."""
