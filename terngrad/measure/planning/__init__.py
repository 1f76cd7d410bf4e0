"""What a step would take elsewhere."""
