"""What runs leave, for people and for other programs to read."""
