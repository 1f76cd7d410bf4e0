"""Clusters: addresses, rendezvous, tasks, and detection of lost tasks."""
