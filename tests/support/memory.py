"""The file system in memory, for what is written often and needed briefly."""

import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
#: Whether it has enough room. That of a container may have little.
HAS_ROOM = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30
#: The parent of the directories of servers: they sync each write.
PARENT = str(_MEMORY) if HAS_ROOM else "/tmp"
