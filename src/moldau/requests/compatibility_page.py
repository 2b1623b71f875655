"""`docs/compatibility.md`, made from the handlers: `python -m moldau.requests.compatibility_page > docs/...`."""

import importlib
import sys

from moldau.protocol.apis import APIS, BROKER
from moldau.requests import registry

HEAD = """# Which requests are served

Made by `make docs` from the files in `src/moldau/handlers/`; each file's docstring is the contract.

| key | request | versions | |
|---|---|---|---|
"""

FOOT = """
Not served yet (their tables are there): {missing}.
"""


def render() -> str:
    """The page."""
    rows = []
    for key, module in registry.modules().items():
        api = next(api for api in APIS if api.key == key)
        contract = importlib.import_module(f"moldau.handlers.{module}").__doc__ or ""
        gaps = contract.partition("Gaps:")[2].partition("\n\n")[0].replace("\n", " ").strip()
        versions = f"{api.min_version} to {api.max_version}"
        rows.append(f"| {key} | [{api.name}](../src/moldau/handlers/{module}.py) | {versions} | {gaps} |\n")
    missing = [
        f"{api.name} ({api.key})" for api in APIS if api.listener == BROKER and api.key not in registry.modules()
    ]
    return HEAD + "".join(rows) + FOOT.format(missing=", ".join(missing))


if __name__ == "__main__":
    sys.stdout.write(render())
