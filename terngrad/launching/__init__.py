"""Starts the tasks of a run on their hosts, watches and stops them."""
