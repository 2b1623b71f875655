"""Lake tables in an object store, by their addresses, as docs/pipelines.md says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from moldau.pipelines.sinks import delta, iceberg
from tests.pipelines.batch_sinks import batch, made
from tests.pipelines.object_store import ObjectStore, object_store

KEYS = ("someone", "secret")


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


def _rows(*rows: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([row[0] for row in rows]), "name": pa.array([row[1] for row in rows])})


def _there(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_a_delta_table_in_an_object_store_is_exact_and_merged(store: ObjectStore) -> None:
    access = {"AWS_ENDPOINT_URL": store.address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    access |= {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}
    spec = made("delta", delta="s3://bucket/orders", key="id", storage=access, compact=3)
    writer = delta.writer(spec)
    for number in range(6):
        assert writer.write(_rows((number, "new"), (0, f"version {number}")), batch(number))
        assert not writer.write(_rows((number, "again")), batch(number))
    table = DeltaTable("s3://bucket/orders", storage_options=access)
    assert _there(table.to_pyarrow_table()) == [(0, "version 5"), *((number, "new") for number in range(1, 6))]
    assert len(table.file_uris()) < len([key for key in store.keys("bucket", "orders/") if key.endswith(".parquet")])


def test_an_iceberg_table_in_an_object_store_is_exact_and_merged(store: ObjectStore, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://bucket/lake"}
    catalog |= {"s3.endpoint": store.address, "s3.access-key-id": KEYS[0], "s3.secret-access-key": KEYS[1]}
    catalog |= {"s3.region": "us-east-1"}
    writer = iceberg.writer(made("iceberg", iceberg="web.orders", catalog=catalog, compact=3))
    for number in range(6):
        assert writer.write(_rows((number, "new")), batch(number))
        assert not writer.write(_rows((number, "again")), batch(number))
    table = load_catalog("default", **catalog).load_table("web.orders")
    assert _there(table.scan().to_arrow()) == [(number, "new") for number in range(6)]
    assert len(list(table.scan().plan_files())) < 6
    assert store.keys("bucket", "lake/web/orders/metadata/")
