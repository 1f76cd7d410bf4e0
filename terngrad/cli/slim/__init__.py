"""Commands with the flags of TF-Slim."""
