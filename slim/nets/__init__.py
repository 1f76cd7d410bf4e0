"""Networks, built by name with `slim.nets.factory`."""
