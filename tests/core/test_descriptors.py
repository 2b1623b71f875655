"""How descriptors are shared out."""

import pytest

from moldau.core.descriptors import share_out


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 1 << 20])
def test_files_have_descriptors_that_no_connection_can_take(limit: int) -> None:
    shares = share_out(limit)
    assert 0 < shares.connection_max < shares.file_max < limit


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 1 << 20])
def test_connections_have_descriptors_that_no_idle_file_can_keep(limit: int) -> None:
    shares = share_out(limit)
    assert shares.files_max <= shares.connection_max // 2


@pytest.mark.parametrize(("limit", "connections"), [(256, 192), (1024, 896), (100_000, 98_976)])
def test_connections_get_the_most_of_them(limit: int, connections: int) -> None:
    assert share_out(limit).connection_max == connections
