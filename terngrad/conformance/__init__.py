"""Claims about every gradient code, and their check on any of them."""
