"""Turns: the inbound streams, leases, and how the owner of a lease begins and ends turns."""
