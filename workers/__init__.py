"""What `rq worker` loads: its settings, the one job it runs, and the class that allows no other."""
