"""The four jars that let Spark read and write topics, resolved once and kept in the user's cache directory.

Each is resolved without what it depends on: the connector's own list would bring sixty jars, most of them in Spark
already. Ivy, which PySpark carries, does it with settings of our own: a half-filled local Maven repository breaks a
resolution that looks there. The exact version first; where a repository lacks one, the newest before it. A jar that we
know is compared with the hash under which it was published.

A directory of the cache is complete or not there: it is filled under another name and then renamed.
"""

import hashlib
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from moldau.pipelines.spark.jar_hashes import SHA256
from moldau.pipelines.spark.java import is_carried, java_home
from moldau.pipelines.spark.trust_store import write_trust_store

SCALA = "2.13"
RESOLVE_TIMEOUT_S = 300.0

logger = logging.getLogger(__name__)


class JarsMissing(Exception):
    """Error: the jars are not in the cache and cannot be fetched; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class _Module:
    """A jar by its Maven coordinates; `revision` may be a range."""

    group: str
    name: str
    revision: str

    def or_older(self) -> "_Module":
        return replace(self, revision=f"(,{self.revision}]")

    def __str__(self) -> str:
        return f"{self.name} {self.revision}"


_CONNECTOR = ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}")
_NEEDED = (
    ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}"),
    ("org.apache.kafka", "kafka-clients"),
    ("org.apache.commons", "commons-pool2"),
)


def connector_jars() -> list[Path]:
    """The jars for the installed PySpark: from the cache, or resolved into it."""
    from pyspark import __version__ as spark_version

    kept = cache_directory() / f"spark-{spark_version}"
    if not _is_complete(kept):
        _fill(kept, spark_version)
    return sorted(kept.glob("*.jar"))


def cache_directory() -> Path:
    """Directory in which a user's programs keep files that they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau"


def _is_complete(directory: Path) -> bool:
    return all(any(directory.glob(f"{name}-*.jar")) for _, name in (_CONNECTOR, *_NEEDED))


def _fill(kept: Path, spark_version: str) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=kept.parent) as work:
            resolved = _Ivy(Path(work)).resolve_all(spark_version)
            _check_hashes(resolved)
            _put_in_place(resolved, kept, Path(work))
    except OSError as error:
        raise JarsMissing(f"cannot write Spark's Kafka connector to {kept}: {error}") from error
    except _Unresolved as error:
        raise JarsMissing(
            f"cannot get {error}: connect this machine to a Maven repository once, or put the four jars into {kept}"
        ) from error


def _check_hashes(resolved: Path) -> None:
    """Raise JarsMissing if a jar is not the one that was published under its name."""
    for jar in sorted(resolved.glob("*.jar")):
        published = SHA256.get(jar.name)
        if published is None:
            logger.info("%s is of a version whose hash is not known here", jar.name)
        elif hashlib.sha256(jar.read_bytes()).hexdigest() != published:
            raise JarsMissing(
                f"{jar.name} is not the jar that was published under this name: "
                "ask who runs this machine's Maven repository, or put the four jars in place by hand"
            )


def _put_in_place(resolved: Path, kept: Path, work: Path) -> None:
    """Rename the resolved jars into the cache, unless another process was quicker: then its directory stays."""
    if kept.exists() and not _is_complete(kept):
        kept.rename(work / "incomplete")
    try:
        resolved.rename(kept)
    except OSError:
        if not _is_complete(kept):
            raise


class _Unresolved(Exception):
    """Error: a jar was not found, and why."""


class _Ivy:
    """Ivy in a directory of its own, so that no half-filled one can mislead it."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._jars = work / "jars"
        self._settings = work / "settings.xml"
        self._settings.write_text(_settings(work / "cache"))
        self._java = [*_java_command(work), "-jar", str(_ivy_jar()), "-settings", str(self._settings)]

    def resolve_all(self, spark_version: str) -> Path:
        """A directory with the connector and the other three jars in the versions that its description names."""
        connector = self._resolve([_Module(*_CONNECTOR, spark_version)])[0]
        self._resolve(self._needed_by(connector))
        return self._jars

    def _needed_by(self, connector: _Module) -> list[_Module]:
        described = self._work / "cache" / connector.group / connector.name / f"ivy-{connector.revision}.xml"
        revisions = {
            (needed.attrib["org"], needed.attrib["name"]): needed.attrib["rev"]
            for needed in ElementTree.parse(described).iter("dependency")
        }
        return [_Module(*needed, revisions[needed]) for needed in _NEEDED]

    def _resolve(self, modules: Sequence[_Module]) -> list[_Module]:
        """The modules with the revision that was found for each. Ivy retrieves nothing at all if one is missing."""
        said = self._run(modules)
        missing = [module for module in modules if f":: {module.group}#{module.name};" in said]
        if missing:
            said = self._run([module.or_older() if module in missing else module for module in modules])
        found = [taken for module in modules if (taken := self._taken(module))]
        if len(found) < len(modules):
            raise _Unresolved(f"{' and '.join(map(str, missing or modules))}{_reason(said)}")
        for module in missing:
            logger.warning("%s cannot be had here: %s is used instead", module, self._taken(module))
        return found

    def _taken(self, module: _Module) -> _Module | None:
        for jar in self._jars.glob(f"{module.name}-*.jar"):
            return replace(module, revision=jar.stem.removeprefix(f"{module.name}-"))
        return None

    def _run(self, modules: Sequence[_Module]) -> str:
        """Fetch the modules; returns Ivy's output."""
        wanted = self._work / "wanted.xml"
        wanted.write_text(_wanted(modules))
        try:
            ended = subprocess.run(
                [*self._java, "-ivy", str(wanted), "-retrieve", f"{self._jars}/[artifact]-[revision].[ext]"],
                capture_output=True,
                text=True,
                timeout=RESOLVE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"Server access error (TimeoutExpired: no answer within {RESOLVE_TIMEOUT_S:.0f} s)"
        return ended.stdout + ended.stderr


def _reason(said: str) -> str:
    """The reason why Ivy did not reach the repository, in brackets; empty if it did and the jar is not there."""
    refused = re.search(r"Server access error.*\((?:[\w.]+\.)?(\w+: [^\n)]*)", said)
    return f" ({refused[1]})" if refused else ""


def _java_command(work: Path) -> list[str]:
    home = java_home()
    command = [str(home / "bin" / "java"), "-Xmx256m"]
    if is_carried(home) and (store := write_trust_store(work / "trusted.jks")):
        command.append(f"-Djavax.net.ssl.trustStore={store}")
    return command


def _ivy_jar() -> Path:
    import pyspark

    return next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))


def _wanted(modules: Sequence[_Module]) -> str:
    dependencies = "".join(
        f'<dependency org="{module.group}" name="{module.name}" rev={quoteattr(module.revision)} '
        'transitive="false" conf="default->master"/>'
        for module in modules
    )
    return (
        '<ivy-module version="2.0"><info organisation="moldau" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _settings(cache: Path) -> str:
    """Ivy's ordinary repository, or the mirror that this machine names for it."""
    mirror = _mirror()
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return (
        f'<ivysettings><settings defaultResolver="maven"/><caches defaultCacheDir={quoteattr(str(cache))}/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>'
    )


def _mirror() -> str | None:
    """Spark's variable for a repository, else the mirror of `central` in Maven's settings."""
    if named := os.environ.get("DEFAULT_ARTIFACT_REPOSITORY"):
        return named
    settings = Path.home() / ".m2" / "settings.xml"
    if not settings.exists():
        return None
    for mirror in ElementTree.parse(settings).iterfind(".//{*}mirror"):
        mirrored = (mirror.findtext("{*}mirrorOf") or "").replace(" ", "").split(",")
        if {"central", "*", "external:*"} & set(mirrored) and "!central" not in mirrored:
            return (mirror.findtext("{*}url") or "").strip() or None
    return None
