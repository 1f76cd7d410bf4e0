"""Steps of several processes: time, and bytes on the network."""
