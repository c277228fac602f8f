"""RemoteClaw connects coding agents to chats, as a fleet on Redis and RQ."""

__version__ = "0.1.0"
