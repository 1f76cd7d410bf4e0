"""The programs. Nothing imports them."""
