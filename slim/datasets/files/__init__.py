"""Readers of untrusted files: archives, pickles, databases and downloads."""
