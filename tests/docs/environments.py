"""An environment with nothing but the built wheel and what it depends on."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built_wheel(directory: Path) -> Path:
    """The wheel, as `python -m build` makes it."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    [wheel] = directory.glob("moldau-*.whl")
    return wheel


def environment(directory: Path, wheel: Path) -> Path:
    """A fresh environment with the wheel in it, by the installer; returns its Python. The locked dependencies are
    seen by a path: nothing is fetched, and the checkout itself is not there."""
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    [packages] = directory.glob("lib/python*/site-packages")
    # a directory that a .pth names has its own .pth files left alone: so the editable install is not seen
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "-q", "--offline", "--python", str(python), "--no-deps", "--no-index", str(wheel)]
    if not Path(uv).exists():
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
        install = [*pip, "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return python
