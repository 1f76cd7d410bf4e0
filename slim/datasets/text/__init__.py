"""Text as documents, tokens and shards."""
