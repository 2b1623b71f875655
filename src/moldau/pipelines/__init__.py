"""Declared pipelines that Spark Structured Streaming runs: topics, files and tables in; views; topics and tables out.

    from moldau.pipelines import Pipeline

The model is in `spec.py`, the kinds of sources and sinks in `kinds.py`; docs/pipelines.md is for users.
"""

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.python_file import Pipeline
from moldau.pipelines.file.spec import PipelineSpec

__all__ = ["Pipeline", "PipelineError", "PipelineSpec", "Problem", "load"]
