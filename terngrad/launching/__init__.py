"""Starts, watches and stops the tasks of a run on their hosts."""
