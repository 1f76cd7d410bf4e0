"""Files from elsewhere that may be hostile: archives, pickles, databases."""
