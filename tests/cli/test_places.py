"""Which cluster a tool speaks to."""

from argparse import Namespace
from pathlib import Path

import pytest

from moldau.cli.failures import ToolError
from moldau.cli.places import Place, place

FILE = """
default = "laptop"
[clusters.laptop]
bootstrap-server = "laptop:9092"
[clusters.production]
bootstrap-server = "kafka-1:9093,kafka-2:9093"
command-config = "client.properties"
properties = { "security.protocol" = "SSL", "enable.ssl.certificate.verification" = false }
"""


def asked(
    directory: Path, *, server: str | None = None, cluster: str | None = None, text: str = FILE, **environment: str
) -> Place:
    """The place, with this file of clusters."""
    (directory / "moldau.toml").write_text(text)
    (directory / "client.properties").write_text("security.protocol=PLAINTEXT\nclient.id=me\n")
    return place(
        Namespace(bootstrap_server=server, cluster=cluster), {"XDG_CONFIG_HOME": str(directory), **environment}
    )


def test_options_go_before_the_environment_and_the_environment_before_the_file(tmp_path: Path) -> None:
    both = {"MOLDAU_BOOTSTRAP_SERVER": "there:1", "MOLDAU_CLUSTER": "production"}
    assert asked(tmp_path, server="here:1", **both).bootstrap == "here:1"
    assert asked(tmp_path, cluster="laptop", **both).bootstrap == "laptop:9092"
    assert asked(tmp_path, **both).bootstrap == "there:1"
    assert asked(tmp_path, MOLDAU_CLUSTER="production").bootstrap == "kafka-1:9093,kafka-2:9093"
    assert asked(tmp_path).bootstrap == "laptop:9092"
    assert asked(tmp_path, text="").bootstrap == "localhost:9092"


def test_without_a_file_the_broker_is_on_this_machine(tmp_path: Path) -> None:
    assert place(Namespace(), {"HOME": str(tmp_path)}) == Place("localhost:9092", {})


def test_a_clusters_properties_go_before_those_of_its_file(tmp_path: Path) -> None:
    assert asked(tmp_path, cluster="production").properties == {
        "security.protocol": "SSL",
        "client.id": "me",
        "enable.ssl.certificate.verification": "false",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[clusters", "is not TOML"),
        ("[clusters.other]\nbootstrap-server = 'x'", "it names other"),
        ("clusters = 3", "it names none"),
        ("clusters.x = 3", "no cluster 'x'"),
        ("[clusters.x]\n", "has no bootstrap-server"),
        ("[clusters.x]\nbootstrap-server = 3", "is not a str"),
        ("[clusters.x]\nbootstrap = 'x'", "'bootstrap', which is none of"),
        ("[clusters.x]\nbootstrap-server = 'x'\ncommand-config = 'gone'", "cannot read"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ToolError, match=said) as raised:
        asked(tmp_path, cluster="x", text=text)
    assert str(tmp_path) in str(raised.value)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="MOLDAU_CONFIG"):
        place(Namespace(), {"MOLDAU_CONFIG": str(tmp_path / "gone.toml")})


def test_an_address_and_a_cluster_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="exclude"):
        asked(tmp_path, server="here:1", cluster="laptop")
