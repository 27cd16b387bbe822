"""A worker that dies before it serves, in a file that a process of its own imports fast."""

from __future__ import annotations

import os
from socket import socket

from proxy.workers import Overseer


def falls(sockets: list[socket], overseer: Overseer) -> None:
    os._exit(3)
