"""What a session's entries become: decisions about turns, without any I/O."""
