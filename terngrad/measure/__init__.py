"""What the benches share: timing in turns, measurements of codecs, rivals."""
