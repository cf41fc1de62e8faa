"""A program that has no network."""

from mininet.util import dumpNodeConnections

print("nothing here", dumpNodeConnections([]))
