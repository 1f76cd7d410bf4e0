"""What several nets are made of."""
