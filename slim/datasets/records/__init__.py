"""TFRecord files: shards, their manifest, their order."""
