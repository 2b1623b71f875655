"""Status of a pipeline's run, from the files that the run left in the storage."""

from collections.abc import Iterator, Mapping
from typing import Any

from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.display import table
from moldau.pipelines.run.progress import Figures
from moldau.pipelines.run.storage import Storage

GOING_ON = ("running", "stopping")


def found(spec: PipelineSpec) -> dict[str, Any]:
    """The status as the run wrote it, with the state as it is now: a run that was killed could not say so."""
    storage = Storage(spec.storage)
    pid, status = storage.runner(), storage.read_status()
    if pid is not None and (status is None or status["pid"] != pid or status["state"] not in GOING_ON):
        return {"pipeline": spec.name, "state": "starting", "pid": pid, "queries": []}
    if status is None:
        return {"pipeline": spec.name, "state": "never run", "queries": []}
    if pid is None and status["state"] in GOING_ON:
        status["state"] = "killed"
    return status


def describe(status: Mapping[str, Any]) -> Iterator[str]:
    state = status["state"]
    yield f"{status['pipeline']}: {state}{_details(status)}"
    figures = [Figures(**each) for each in status["queries"]]
    for line in table(figures):
        yield f"  {line}"
    if status.get("error"):
        yield f"  {status['error']}"
    if state == "killed":
        yield "  it did not end by itself; the next run goes on from its checkpoints"


def _details(status: Mapping[str, Any]) -> str:
    if "mode" not in status:
        return f" (process {status['pid']})" if status.get("pid") else ""
    who = f", process {status['pid']}" if status["state"] in GOING_ON else ""
    return f" ({status['mode']}{who}), since {status['started'][:19]}, as of {status['updated'][:19]} UTC"
