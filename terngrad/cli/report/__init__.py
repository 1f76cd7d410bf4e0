"""Commands that report on runs."""
