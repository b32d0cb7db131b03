"""The simulation of a whole federation in one process."""
