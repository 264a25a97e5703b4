"""A sync of the journal that failed, remembered for the next start.

Linux takes pages for clean once a sync of them failed, and may drop them at any time: the system
need not restart for what was written to be gone. A start that finds this note, or is told of the
failure by a sync of its own, therefore goes by what it finds and not by what the boot says.
"""

from __future__ import annotations

from headrace.formats import layout
from headrace.observe import log_line
from headrace.storage.disk import Disk, write_atomically


def note(disk: Disk, problem: str) -> None:
    """Remember it; durable when this returns."""
    text = f"a sync of the journal failed: {problem}\n"
    write_atomically(disk, layout.UNSYNCED, (text.encode(),))


def found(disk: Disk, journal_file: str | None) -> bool:
    """Whether what was written to the journal may be gone although the system went on.

    Syncs its last file: what a killed process left may have failed to reach the disk after that,
    and the first who asks is told.
    """
    if disk.exists(layout.UNSYNCED):
        problem = "noted before"
    elif journal_file is None:
        return False
    else:
        try:
            disk.sync(journal_file)
            return False
        except PermissionError:
            raise  # says nothing of the disk
        except OSError as error:
            problem = str(error)
            note(disk, problem)  # nobody is told twice
    log_line(
        "error", "a sync of the journal failed: what was not synced may be lost", problem=problem
    )
    return True


def forget(disk: Disk) -> None:
    """The consequences are in the journal, and synced."""
    disk.remove(layout.UNSYNCED)
    disk.sync_folder("")
