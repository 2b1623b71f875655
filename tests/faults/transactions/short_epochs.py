"""The `moldau` command with producers whose epochs end early, so that they overflow in the time of a test.

python -m tests.faults.transactions.short_epochs EPOCHS serve FILE
"""

import sys

from moldau.__main__ import main as moldau
from moldau.coordinators.transactions.transaction import Numbering


def main() -> int:
    epochs, *arguments = sys.argv[1:]
    Numbering.__new__.__defaults__ = (int(epochs),)
    return moldau(arguments)


if __name__ == "__main__":
    sys.exit(main())
