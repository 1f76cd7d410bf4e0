"""From decoded images to what a net is fed."""
