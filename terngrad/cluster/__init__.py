"""Who takes part: addresses, ways to meet, tasks, and what is lost."""
