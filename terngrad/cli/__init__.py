"""What the programs share, and the commands."""
