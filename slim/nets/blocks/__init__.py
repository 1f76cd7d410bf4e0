"""Building blocks that several nets share."""
