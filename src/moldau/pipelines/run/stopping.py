"""Stopping of a run from another process: it is asked, and ends after the batch at hand."""

import os
import signal
import time

from moldau.pipelines.run.storage import Storage

LOOK_S = 0.1


class StopFailed(Exception):
    """Error: the run could not be stopped, or not in time."""


class NotInTime(StopFailed):
    """Error: the run was asked to stop, and its batch takes longer than somebody wanted to wait."""


def stop(name: str, storage: Storage, timeout_s: float) -> bool:
    """Stop the run of a pipeline and wait for its end; False if there was none. Raises StopFailed."""
    pid = storage.runner()
    if not pid:
        return False
    try:
        if storage.is_shared():
            storage.ask_stop()
        else:
            os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise StopFailed(f"process {pid} of {name} belongs to another user") from error
    except ProcessLookupError as error:
        raise StopFailed(f"process {pid} of {name} is not on this machine") from error
    deadline = time.monotonic() + timeout_s
    while storage.runner() == pid:
        if time.monotonic() > deadline:
            raise NotInTime(f"{name} (process {pid}) has not ended in {timeout_s:g} s; it will after its batch")
        time.sleep(LOOK_S)
    return True
