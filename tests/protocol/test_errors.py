"""The error codes are Kafka's."""

from importlib import import_module

from moldau.protocol.errors import ApiError, ErrorCode


def test_kio_has_the_same_codes() -> None:
    theirs = import_module("kio.schema.errors").ErrorCode
    ours = {code.value: code.name for code in ErrorCode}
    assert {code.value: code.name.upper() for code in theirs}.items() <= ours.items()


def test_codes_are_dense() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, 134))


def test_an_api_error_says_what_happened() -> None:
    assert str(ApiError(ErrorCode.INVALID_CONFIG, "no such key: x")) == "INVALID_CONFIG: no such key: x"
    assert str(ApiError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"
