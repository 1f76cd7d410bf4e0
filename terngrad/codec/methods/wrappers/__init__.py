"""What can be put around any method."""
