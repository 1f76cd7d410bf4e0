"""What the programs share: flag tables, command lines and exit codes."""
