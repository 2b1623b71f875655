"""Schemas that were found, not written, are found once: restarts and replays decode as the first start did.

Each lies in `schemas/SOURCE.json` of the pipeline's storage, with the topic and registry that it was found for. If the
pipeline names others now, it is found anew; delete the file to have it found anew otherwise.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.kinds import Context

DEPENDS_ON = ("topic", "pattern", "format", "schema", "registry", "subject", "message")


def fixed(source: SourceSpec, context: Context, find: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The schema that `find` gave at the first start, in JSON's types."""
    path = context.pipeline.storage / "schemas" / f"{source.name}.json"
    wanted = json.loads(json.dumps({name: source.options.get(name) for name in DEPENDS_ON}))
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept["for"] == wanted:
            return kept["found"]  # type: ignore[no-any-return]
    found = dict(find())
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"for": wanted, "found": found}, indent=2), encoding="utf-8")
    os.replace(new, path)
    return found
