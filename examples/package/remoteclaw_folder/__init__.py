"""What this package adds to RemoteClaw: the channel `folder` and the runtime `calculator`."""
