"""Nchan, pub/sub as a module of nginx, in C: the bar for fan-out."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from headrace_bench.daemon import Daemon
from headrace_bench.link import answers
from headrace_bench.redis import find_free_port

NAME = "Nchan"
SERVER = "nginx"
MODULE = "ngx_nchan_module.so"
INSTALL = "apt-get install libnginx-mod-nchan"
READY_TIMEOUT_S = 30.0

PUBLISH_PATH = "/publish"
EVENTS_PATH = "/events"
SOCKET_PATH = "/socket"

# One process, as everything else here gets one core; the other one belongs to the watchers.
CONFIG = """\
load_module {module};
{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 8192;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  # The default closes a connection after a thousand requests.
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  nchan_shared_memory_size 128M;
  # More than a writer ever is ahead: a watcher that falls behind the buffer loses messages.
  nchan_message_buffer_length 1000;
  nchan_message_timeout 60s;
  server {{
    listen 127.0.0.1:{port};
    location = {publish} {{
      nchan_publisher http;
      nchan_channel_id bench;
    }}
    location = {events} {{
      nchan_subscriber eventsource;
      nchan_channel_id bench;
      nchan_subscriber_first_message newest;
    }}
    location = {socket} {{
      nchan_subscriber websocket;
      nchan_channel_id bench;
      nchan_subscriber_first_message newest;
    }}
  }}
}}
"""


def is_installed() -> bool:
    return shutil.which(SERVER) is not None and find_module() is not None


def find_module() -> Path | None:
    """Where this nginx keeps its modules, if Nchan is among them."""
    folder = re.search(r"--modules-path=(\S+)", _read_build())
    path = Path(folder[1] if folder else "/usr/lib/nginx/modules") / MODULE
    return path if path.exists() else None


def describe() -> str:
    """For the report; the module does not tell its own version."""
    return _read_build().splitlines()[0] if is_installed() else "not installed"


class NchanProcess(Daemon):
    """An nginx with nothing but one channel of Nchan, kept in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.port = 0

    def start(self) -> Self:
        self.port = find_free_port()
        config = self._folder / "nginx.conf"
        config.write_text(
            CONFIG.format(
                module=find_module(),
                # Its workers would otherwise be somebody who may not enter the folder.
                user="user root;" if os.geteuid() == 0 else "",
                folder=self._folder,
                port=self.port,
                publish=PUBLISH_PATH,
                events=EVENTS_PATH,
                socket=SOCKET_PATH,
            )
        )
        self._launch([SERVER, "-e", "stderr", "-p", str(self._folder), "-c", str(config)])
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not answers(self.port):
            self._pause(deadline)
        return self

    def kill(self) -> None:
        """A master that is killed leaves its worker behind; one that is told to stop does not."""
        group = 0 if self._process is None else self._process.pid
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            os.killpg(group, signal.SIGKILL)
            raise


def _read_build() -> str:
    done = subprocess.run([SERVER, "-V"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
