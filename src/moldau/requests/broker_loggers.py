"""The levels of the broker's loggers, by which an operator looks closer without a restart (KIP-412).

Levels have log4j's names here. A logger without a level of its own is shown with the one it inherits.
"""

import logging
from collections.abc import Iterator

from moldau.core.config import ConfigEntry, ConfigSource, ConfigType
from moldau.protocol.errors import ApiError, ErrorCode

ROOT = "root"
OURS = "moldau"
TRACE = 5  # below DEBUG, which is all that Python has

LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}


def entries() -> Iterator[ConfigEntry]:
    """Our loggers and the root."""
    for name, logger in _loggers().items():
        level = _level_name(logger.getEffectiveLevel())
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        yield ConfigEntry(name, level, source, False, False, (), ConfigType.UNKNOWN, None)


def check(name: str, level: str | None) -> None:
    """Raise ApiError unless this logger can be set to `level`; None takes its own level away."""
    if name not in _loggers():
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no logger {name[:80]!r}")
    if level is None and name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the root logger must have a level")
    if level is not None and level not in LEVELS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: {level[:80]!r} is not one of {', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level, which `check` has allowed."""
    _loggers()[name].setLevel(logging.NOTSET if level is None else LEVELS[level])


def _loggers() -> dict[str, logging.Logger]:
    known = sorted(logging.root.manager.loggerDict)
    ours = {name: logging.getLogger(name) for name in known if name == OURS or name.startswith(f"{OURS}.")}
    return {ROOT: logging.root, **ours}


def _level_name(level: int) -> str:
    """The name of the nearest level that is not above this one."""
    below = [name for name, value in LEVELS.items() if value <= level]
    return max(below, key=LEVELS.__getitem__, default="TRACE")
