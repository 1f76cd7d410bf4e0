"""The commands with the flags of TF-Slim."""
