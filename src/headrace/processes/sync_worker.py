"""A process that does nothing but sync one file when told to.

Run as a script with the number of a socket: a message with a descriptor says which file from now
on, any other message asks for a sync and is answered with the error number, 0 for none. It imports
next to nothing, so it starts in a few milliseconds and stays small, and it ends with its socket.
"""

import os
import socket
import sys

ERROR_BYTES = 4
SYNC = b"s"


def main() -> None:
    server = socket.socket(fileno=int(sys.argv[1]))
    file = -1
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(server, 1, 1)
        except ConnectionError:
            return  # the server was killed in the middle of a sentence
        if not message:
            return
        if descriptors:
            if file >= 0:
                os.close(file)
            file = descriptors[0]
            continue
        if message != SYNC:
            return  # a file that did not arrive: to sync the old one would be a lie
        error = 0
        try:
            os.fdatasync(file)
        except OSError as failure:
            error = failure.errno or -1
        try:
            server.send(error.to_bytes(ERROR_BYTES, "little", signed=True))
        except ConnectionError:
            return


if __name__ == "__main__":
    main()
