"""What this package adds to RemoteClaw: the channel `plaza`, a platform that pushes."""
