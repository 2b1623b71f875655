"""The file of users: JSON, a name each with a role and a password that was hashed with scrypt."""

import hashlib
import hmac
import json
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.console.failures import ConsoleError

log = logging.getLogger("moldau.console")

READER, EDITOR = "reader", "editor"
ROLES = (READER, EDITOR)
PASSWORD_MIN = 8
PASSWORD_MAX = 1024
NAME_MAX = 100
# 16 MiB and about 50 ms for a guess
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 14, 8, 1
SALT_BYTES = 16


class User(NamedTuple):
    """A user."""

    name: str
    role: str
    salt: bytes
    hashed: bytes

    def has_password(self, password: str) -> bool:
        return hmac.compare_digest(_hashed(password, self.salt), self.hashed)


def new_user(name: str, role: str, password: str) -> User:
    """A user with a hashed password. Raises ConsoleError where name, role or password are not fit."""
    if not name or len(name) > NAME_MAX or not name.isprintable() or name != name.strip():
        raise ConsoleError(f"a user's name has 1 to {NAME_MAX} printable characters, with no space at its ends")
    if role not in ROLES:
        raise ConsoleError(f"there is no role {role!r}: say {' or '.join(ROLES)}")
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise ConsoleError(f"a password has {PASSWORD_MIN} to {PASSWORD_MAX} characters")
    salt = secrets.token_bytes(SALT_BYTES)
    return User(name, role, salt, _hashed(password, salt))


def _hashed(password: str, salt: bytes) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)


_NOBODY = User("", READER, bytes(SALT_BYTES), bytes(64))


def who(users: Mapping[str, User], name: str, password: str) -> User | None:
    """The user with this name and password. An unknown name takes as long as a wrong password."""
    if len(password) > PASSWORD_MAX:
        return None
    user = users.get(name, _NOBODY)
    return user if user.has_password(password) and user is not _NOBODY else None


def read_users(path: Path) -> dict[str, User]:
    """Users by name. Raises ConsoleError where the file cannot be read."""
    try:
        content = json.loads(path.read_text())
        found = {
            name: User(name, each["role"], bytes.fromhex(each["salt"]), bytes.fromhex(each["scrypt"]))
            for name, each in content["users"].items()
        }
    except OSError as error:
        raise ConsoleError(f"cannot read the users in {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{path} is no file of users: `moldau console add-user` makes one") from error
    wrong = [user.name for user in found.values() if user.role not in ROLES]
    if wrong:
        raise ConsoleError(f"{path}: {wrong[0]} has a role that is none of {', '.join(ROLES)}")
    return found


class UserFile:
    """Users of a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int, int] | None = None
        self._users: Mapping[str, User] = {}

    def users(self) -> Mapping[str, User]:
        """Users as they are now; as they were, while the file cannot be read."""
        try:
            found = self._path.stat()
            now = (found.st_mtime_ns, found.st_size, found.st_ino)
            if now != self._read_at:
                self._users, self._read_at = read_users(self._path), now
        except (OSError, ConsoleError) as error:
            log.warning("sessions go on with the users that were known: %s", error)
        return self._users


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Write the file as a whole or not at all; nobody else may read it."""
    content = {
        "users": {
            each.name: {"role": each.role, "salt": each.salt.hex(), "scrypt": each.hashed.hex()}
            for each in users.values()
        }
    }
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json.dumps(content, indent=1) + "\n")
        beside.replace(path)
    except OSError as error:
        raise ConsoleError(f"cannot write the users to {path}: {error.strerror}") from error
