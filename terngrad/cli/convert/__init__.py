"""Commands that write data sets."""
