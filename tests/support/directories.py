"""Where tests have their files."""

import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
#: Whether there is enough memory for them. A container may have little of it.
HAS_MEMORY = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30
#: The parent of the tests' directories: in memory, because servers sync each write.
PARENT = str(_MEMORY) if HAS_MEMORY else "/tmp"
