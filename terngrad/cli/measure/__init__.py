"""Commands that measure speed, bytes and quality."""
