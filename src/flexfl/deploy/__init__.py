"""The same method on a real network."""
