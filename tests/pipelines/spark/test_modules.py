"""Modules beside a pipeline's Python file that go to the workers, without Spark."""

import zipfile
from pathlib import Path

from moldau.pipelines.spark import modules


def _written(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory / next(iter(files))


def test_what_a_file_imports_from_beside_itself_is_sent_and_nothing_else(tmp_path: Path) -> None:
    file = _written(
        tmp_path,
        {
            "orders.py": "import json, prices\nfrom moldau.pipelines import Pipeline\n\ndef f():\n    import late\n",
            "prices.py": "from shop.rates import rate\nimport orders_not_there\n",
            "late.py": "this is no Python\n",
            "shop/__init__.py": "from . import rates\n",
            "shop/rates.py": "import prices\n",
            "shop/more/deep.py": "",
            "moldau/__init__.py": "",
            "unused.py": "",
        },
    )
    expected = ["late.py", "prices.py", "shop/__init__.py", "shop/more/deep.py", "shop/rates.py"]
    found = modules.imported(file)
    assert sorted(found) == expected
    archive = modules.packed(found)
    assert sorted(zipfile.ZipFile(archive).namelist()) == expected
    assert archive.name != modules.packed(found).name, "two pipelines in one Spark send files of one name"


def test_a_file_that_is_no_python_or_is_installed_sends_nothing(tmp_path: Path) -> None:
    assert modules.imported(_written(tmp_path, {"p.yaml": "import prices", "prices.py": ""})) == {}
    installed = _written(tmp_path, {"site-packages/p.py": "import prices", "site-packages/prices.py": ""})
    assert modules.imported(installed) == {}
