"""Algorithm 1: the pure steps of client and server, and the oracle."""

from flexfl.algorithm import client, server
from flexfl.algorithm.reference import Step, reference

__all__ = ["Step", "client", "reference", "server"]
