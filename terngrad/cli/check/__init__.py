"""`terngrad check`: the commands that check what a user wrote."""
