"""Runs with parameter servers, synchronous and asynchronous."""
