"""A stream under fire for as long as one likes: ``make soak SECONDS=3600 SEED=1``.

A standalone cluster of two workers joins one stream with PostgreSQL, HTTP and Redis, each behind a proxy, while one
seed chooses what happens to them: killed Python workers, executors and servers, broken and slow lines, half answers,
refused requests, stepped wall clocks. The executor of the first worker is never killed, so that what it leaks adds up.

Each committed row is checked: it came once, and its values are those that the sources held between its arrival and its
commit. Counts and dead letters must agree with the rows. Memory, threads, open files and sessions may not grow.
It runs on Linux, whose ``/proc`` tells the names of threads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil

from tests import jvm
from tests.processes import soak_clock
from tests.processes.soak_checks import (
    KEYS,
    PEOPLE,
    POISONED,
    STALE,
    Gauge,
    Sink,
    Versions,
    letters_in,
    paths_below,
    table_of,
)
from tests.servers.http_server import ApiServer
from tests.servers.postgres import PostgresServer, free_port, running_server
from tests.servers.proxy import FaultProxy, faulty_line
from tests.servers.redis import RedisServer, running_redis
from tests.servers.spark_cluster import standalone_cluster
from tests.spark.elsewhere import ROOT

RATE = 100
"""Rows per second."""
SECONDS_OF_A_VERSION = 3.0
SAMPLE_SECONDS = 5.0
LONG_SECONDS = 170.0
"""A run that is shorter says nothing about growth."""
BLOCK_MANAGERS = "block-manager-"
"""How the threads of those pools of Spark are named that grow for an hour, and have 128 threads at the most."""
PATIENCE = 120.0
"""Seconds that the stream has to start, and to catch up in the end."""


class Sources:
    """The three servers, their proxies, and what they hold."""

    def __init__(self, postgres: PostgresServer, http: ApiServer, redis: RedisServer, folder: Path) -> None:
        self.postgres, self.http, self.redis = postgres, http, redis
        self.api = http.start()
        self.versions = {name: Versions() for name in ("pg", "web", "kv")}
        self.clock = folder / "clock"
        self.clock.write_bytes(struct.pack("d", 0.0))
        self.locks = {"web": threading.Lock(), "kv": threading.Lock()}
        """Of the servers that forget their rows: who holds one restarts its server, or writes to it."""
        postgres.execute(
            "CREATE TABLE version (number bigint); INSERT INTO version VALUES (0);"
            f"CREATE TABLE ids AS SELECT n AS id FROM generate_series(0::bigint, {PEOPLE - 1}) n;"
            "ALTER TABLE ids ADD PRIMARY KEY (id);"
            "CREATE VIEW people AS SELECT id, id || ':' || number AS name FROM ids, version"
        )

    def write_postgres(self, version: int) -> None:
        """Let all rows of PostgreSQL have ``version``."""
        self.postgres.execute(f"UPDATE version SET number = {version}")

    def write_http(self, version: int) -> None:
        """Let all rows of the API have ``version``."""
        with self.locks["web"]:
            self.fill_http(version)

    def fill_http(self, version: int) -> None:
        """Do it without the lock."""
        rows = [{"id": number, "name": f"{number}:{version}"} for number in range(PEOPLE)]
        rows[POISONED] |= {"status": 400}
        self.api.fill("people", rows)

    def write_redis(self, version: int) -> None:
        """Let all rows of Redis have ``version``."""
        with self.locks["kv"]:
            self.fill_redis(version)

    def fill_redis(self, version: int) -> None:
        """Do it without the lock."""
        with self.redis.client() as client, client.pipeline(transaction=True) as pipeline:
            for number in range(PEOPLE):
                pipeline.hset(f"person:{number}", mapping={"name": f"{number}:{version}"})
            pipeline.execute()

    def forget_requests(self) -> None:
        """Let the API forget what it was asked, and what it shall do."""
        with self.locks["web"]:
            self.api.reset()

    def write_next_version(self, name: str) -> None:
        """Write one version more to the source ``name``, as often as it takes."""
        write = {"pg": self.write_postgres, "web": self.write_http, "kv": self.write_redis}[name]
        version = self.versions[name].begin()
        while True:
            try:
                write(version)
            except Exception:  # it is down: whatever its client makes of that
                time.sleep(0.2)
            else:
                self.versions[name].end()
                return


class Processes:
    """The processes of the stream, by their parts."""

    def __init__(self, driver: int) -> None:
        self.driver = psutil.Process(driver)
        self._executors: dict[int, str] = {}

    def driver_jvm(self) -> psutil.Process | None:
        """The JVM of the driver."""
        return next((each for each in self.driver.children() if each.name() == "java"), None)

    def executors(self, *, is_sheltered: bool) -> list[psutil.Process]:
        """The JVMs of the executors of the first worker, which nobody kills, or of the other one."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.pid not in self._executors:
                    is_executor = "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
                    self._executors[process.pid] = process.cwd() if is_executor else ""
                folder = self._executors[process.pid]
                if folder and ("/worker0/" in folder) == is_sheltered:
                    found.append(process)
        return found

    def workers(self, *, is_sheltered: bool) -> list[psutil.Process]:
        """The Python workers below those executors."""
        found = []
        for executor in self.executors(is_sheltered=is_sheltered):
            with contextlib.suppress(psutil.Error):
                found += [worker for daemon in executor.children() for worker in daemon.children()]
        return found


class Chaos:
    """What one seed does to the servers, their lines and the processes; each kind in turn, in a random order.

    Args:
        seed: of all choices.
        sources: what is killed, throttled, and whose clock is stepped.
        proxies: what breaks lines, by the source behind it.
        processes: of which some are killed.
        longest: seconds for which a server is away at most.
    """

    def __init__(
        self,
        seed: int,
        sources: Sources,
        proxies: dict[str, FaultProxy],
        processes: Processes,
        longest: float,
    ) -> None:
        self._random, self._longest = random.Random(seed), longest
        self._sources, self._proxies, self._processes = sources, proxies, processes
        self.done: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], None]] = {
            "kill a Python worker": self._kill_worker,
            "kill an executor": self._kill_executor,
            "kill PostgreSQL": self._kill_postgres,
            "kill Redis": self._kill_redis,
            "kill the HTTP server": self._kill_http,
            "cut the lines": lambda: self._proxy().cut(),
            "refuse connections": self._refuse,
            "stall a line": self._stall,
            "delay answers": self._delay,
            "cut an answer in its middle": self._cut_answers,
            "throttle HTTP": lambda: self._act({"status": 429, "headers": {"Retry-After": "1"}}, 5),
            "half answers of HTTP": lambda: self._act(
                {"status": 200, "body": '{"id": 1, "name"', "cut": 9}, 20
            ),
            "errors of HTTP": lambda: self._act({"status": 503}, 20),
            "drop HTTP requests": lambda: self._act({"drop": True}, 20),
            "step the wall clock": self._step_clock,
        }

    @property
    def kinds(self) -> int:
        """How many kinds of faults there are."""
        return len(self._kinds)

    def rage(self, until: float, pause: float) -> None:
        """Do one thing after the other, with ``pause`` seconds between them on average; all is well at the end."""
        while True:
            for kind in self._random.sample(sorted(self._kinds), len(self._kinds)):
                if time.monotonic() > until:
                    return
                self._kinds[kind]()
                self.done[kind] += 1
                time.sleep(self._random.uniform(0.5, 1.5) * pause)

    def _proxy(self) -> FaultProxy:
        return self._proxies[self._random.choice(sorted(self._proxies))]

    def _kill_worker(self) -> None:
        self._kill_one(self._processes.workers(is_sheltered=False))

    def _kill_executor(self) -> None:
        self._kill_one(self._processes.executors(is_sheltered=False))

    def _kill_one(self, found: list[psutil.Process]) -> None:
        if found:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._random.choice(found).kill()

    def _kill_postgres(self) -> None:
        self._sources.postgres.kill()
        time.sleep(min(self._random.choice((0.5, 2.0, 6.0, 20.0)), self._longest))
        self._sources.postgres.start(synchronous_commit="on")

    def _kill_redis(self) -> None:
        redis = self._sources.redis
        self._kill_forgetful("kv", redis.stop, redis.start, self._sources.fill_redis)

    def _kill_http(self) -> None:
        http = self._sources.http
        self._kill_forgetful("web", http.kill, http.start, self._sources.fill_http)

    def _kill_forgetful(
        self, name: str, kill: Callable[[], None], start: Callable[[], object], fill: Callable[[int], None]
    ) -> None:
        """Kill a server that forgets its rows; nobody sees it again before it has them."""
        sources, proxy = self._sources, self._proxies[name]
        with sources.locks[name]:
            kill()
            time.sleep(min(self._random.choice((0.5, 2.0, 6.0, 12.0)), self._longest))
            proxy.refuse()
            proxy.cut()
            start()
            fill(sources.versions[name].latest)
            proxy.accept()

    def _refuse(self) -> None:
        proxy = self._proxy()
        proxy.refuse()
        proxy.cut()
        time.sleep(self._random.uniform(1.0, 5.0))
        proxy.accept()

    def _stall(self) -> None:
        proxy = self._proxy()
        proxy.stall()
        time.sleep(self._random.uniform(1.0, 4.0))
        proxy.flow()

    def _delay(self) -> None:
        proxy = self._proxy()
        proxy.delay(self._random.uniform(0.05, 0.5))
        time.sleep(self._random.uniform(1.0, 5.0))
        proxy.flow()

    def _cut_answers(self) -> None:
        proxy = self._proxy()
        for _ in range(5):
            proxy.cut_after(self._random.randrange(2000))
            time.sleep(0.4)
        proxy.flow()

    def _act(self, act: dict[str, object], most: int) -> None:
        self._sources.api.script("*", *[act] * self._random.randint(1, most))

    def _step_clock(self) -> None:
        seconds = self._random.choice((-86_400.0, -3600.0, -30.0, 0.0, 30.0, 3600.0, 86_400.0))
        self._sources.clock.write_bytes(struct.pack("d", seconds))


class Soak:
    """One run: a stream, what happens to it, what is seen of it."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.folder, self.seconds, self.seed = folder, seconds, seed
        self.faults: list[str] = []
        self.gauges = {
            "driver, Python: MB": Gauge(16),
            "driver, Python: open files": Gauge(4),
            "driver, Python: threads": Gauge(4),
            "driver, JVM: MB of live heap": Gauge(24),
            "driver, JVM: open files": Gauge(12),
            "driver, JVM: threads": Gauge(24),
            "executor, JVM: open files": Gauge(12),
            "executor, JVM: threads": Gauge(24),
            "its Python worker: MB": Gauge(16),
            "its Python worker: open files": Gauge(4),
            "its Python worker: threads": Gauge(4),
            "executor: files of lookups": Gauge(40),
            "a worker: sessions at PostgreSQL": Gauge(2),
            "a worker: connections to HTTP": Gauge(2),
            "a worker: connections to Redis": Gauge(2),
        }
        self.began = 0.0

    @property
    def warm(self) -> float:
        """When all has been done once, and nothing need grow any more."""
        return self.began + min(600.0, self.seconds / 3)

    def run(self) -> None:
        """Run it, and find its faults."""
        with contextlib.ExitStack() as stack:
            postgres = stack.enter_context(contextlib.contextmanager(running_server)())
            postgres.stop()
            postgres.start(synchronous_commit="on")  # what was committed outlives a kill
            redis = stack.enter_context(running_redis())
            http = ApiServer(free_port())
            stack.callback(http.kill)
            sources = Sources(postgres, http, redis, self.folder)
            for name in sources.versions:
                sources.write_next_version(name)
            ports = {"pg": postgres.port, "web": sources.api.port, "kv": redis.port}
            proxies = {name: stack.enter_context(faulty_line(port)) for name, port in ports.items()}
            (self.folder / "tmp").mkdir()
            master = stack.enter_context(standalone_cluster(self.folder, workers=2, seconds=PATIENCE))
            job = stack.enter_context(self._job(master, sources, proxies))
            self._soak(job, sources, proxies)

    @contextlib.contextmanager
    def _job(
        self, master: str, sources: Sources, proxies: dict[str, FaultProxy]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The driver, in a process group of its own, none of which is left at the end."""
        variables = {
            soak_clock.FILE: str(sources.clock),
            "SOAK_POSTGRES": sources.postgres.url(port=proxies["pg"].port, sslmode="disable"),
            "SOAK_REDIS": f"redis://127.0.0.1:{proxies['kv'].port}/0",
        }
        given = {
            "master": master,
            "folder": str(self.folder),
            "http": f"http://127.0.0.1:{proxies['web'].port}",
            "rate": RATE,
            "keys": KEYS,
            "stale": STALE,
            **variables,
        }
        (self.folder / "given.json").write_text(json.dumps(given), encoding="utf-8")
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.soak_job", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={
                    **os.environ,
                    **variables,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "connectors"))),
                    "SPARK_SUBMIT_OPTS": jvm.options(),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(self.folder / "local"),
                    "TMPDIR": str(self.folder / "tmp"),
                },
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _soak(self, job: subprocess.Popen[bytes], sources: Sources, proxies: dict[str, FaultProxy]) -> None:
        sink = Sink(self.folder / "out", sources.versions)
        processes = Processes(job.pid)
        self._wait(job, sink, lambda: sink.rows > 0, "start")
        self.began = time.monotonic()
        chaos = Chaos(self.seed, sources, proxies, processes, longest=self.seconds / 10)
        calm = self.began + self.seconds * 0.9
        done = threading.Event()
        # A short run has each kind of fault once, too.
        pause = min(4.0, self.seconds / chaos.kinds / 4)
        threads = [
            self._thread(lambda: chaos.rage(calm, pause)),
            *(self._thread(partial(self._write_on, name, sources, done)) for name in sources.versions),
        ]
        minute = 0
        sampled = 0.0
        while time.monotonic() < self.began + self.seconds and job.poll() is None and not self.faults:
            sink.read_new_batches()
            if time.monotonic() > sampled + SAMPLE_SECONDS:
                sampled = time.monotonic()
                self._sample(processes, proxies)
            if time.monotonic() - self.began >= 60 * (minute + 1):
                minute += 1
                sources.forget_requests()
                self._print_minute(minute, sink, chaos)
            time.sleep(0.5)
        threads[0].join(60)
        healed = time.time()
        self._wait(job, sink, lambda: sink.latest > healed, "catch up")
        (self.folder / "stop").touch()
        done.set()
        for thread in threads:
            thread.join(60)
        try:
            self._end(job, sink, proxies)
        except Exception:  # what was seen until then is told all the same
            self.faults.append(f"the soak itself failed:\n{traceback.format_exc()}")
        self._print_summary(sink, chaos)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException:
                self.faults.append(f"the soak itself failed:\n{traceback.format_exc()}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _write_on(self, name: str, sources: Sources, done: threading.Event) -> None:
        while not done.wait(SECONDS_OF_A_VERSION):
            sources.write_next_version(name)

    def _wait(
        self, job: subprocess.Popen[bytes], sink: Sink, condition: Callable[[], bool], what: str
    ) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if job.poll() is not None or time.monotonic() > deadline:
                output = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
                self.faults.append(f"the stream did not {what} in {PATIENCE:.0f} s:\n{output[-3000:]}")
                return
            sink.read_new_batches()
            time.sleep(0.2)

    def _status(self) -> dict[str, float]:
        with contextlib.suppress(OSError):
            status: dict[str, float] = json.loads((self.folder / "status.json").read_text(encoding="utf-8"))
            return status
        return {}

    def _sample(self, processes: Processes, proxies: dict[str, FaultProxy]) -> None:
        now, workers = time.monotonic(), processes.workers(is_sheltered=True)
        for who, found in (
            ("driver, Python", [processes.driver]),
            ("driver, JVM", [processes.driver_jvm()]),
            ("executor, JVM", processes.executors(is_sheltered=True)),
            ("its Python worker", workers),
        ):
            figures: list[tuple[float, int, int]] = []
            for process in filter(None, found):
                with contextlib.suppress(psutil.Error):
                    figures.append(
                        (process.memory_info().rss / 2**20, process.num_fds(), _count_threads(process))
                    )
            for what, values in zip(
                ("MB", "open files", "threads"), zip(*figures, strict=True), strict=False
            ):
                if (gauge := self.gauges.get(f"{who}: {what}")) is not None:
                    gauge.add(now, max(values))
        if heap := self._status().get("heap"):
            self.gauges["driver, JVM: MB of live heap"].add(now, heap)
        with contextlib.suppress(psutil.Error, IndexError):
            folder = workers[0].environ()["SPARK_LOCAL_DIRS"].split(",")[0]
            files = paths_below(Path(folder) / "lookup_hints")
            self.gauges["executor: files of lookups"].add(now, len(files))
        workers += processes.workers(is_sheltered=False)
        lines = [ports for worker in workers if (ports := _count_lines(worker))]
        for name, connections in (
            ("pg", "a worker: sessions at PostgreSQL"),
            ("web", "a worker: connections to HTTP"),
            ("kv", "a worker: connections to Redis"),
        ):
            self.gauges[connections].add(now, max((each[proxies[name].port] for each in lines), default=0))

    def _print_minute(self, minute: int, sink: Sink, chaos: Chaos) -> None:
        worker = self.gauges["its Python worker: MB"].samples
        driver = self.gauges["driver, Python: MB"].samples
        print(
            f"minute {minute}: {sink.rows:,} rows in {sink.batches + 1:,} batches, {time.time() - sink.latest:.0f} s"
            f" behind, {self._status().get('restarts', 0)} restarts, {chaos.done.total()} faults made,"
            f" {len(sink.failed)} ids failed, worker {worker[-1][1] if worker else 0:.0f} MB, driver"
            f" {driver[-1][1] if driver else 0:.0f} MB, {len(sink.faults)} wrong",
            flush=True,
        )

    def _end(self, job: subprocess.Popen[bytes], sink: Sink, proxies: dict[str, FaultProxy]) -> None:
        """Wait for the driver's end, and check what can be checked only then."""
        try:
            code = job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.faults.append(f"the driver does not stop within {PATIENCE:.0f} s")
            return
        if code:
            output = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
            self.faults.append(f"the driver ended with {code}:\n{output[-3000:]}")
        sink.read_new_batches()
        self._check_input(sink)
        self._check_letters_and_counts(sink)
        for name, gauge in self.gauges.items():
            if self.seconds >= LONG_SECONDS and gauge.growth(self.warm) > gauge.most:
                self.faults.append(f"{name} grew by {gauge.growth(self.warm):.1f}, and may by {gauge.most:g}")
            if not gauge.samples:
                self.faults.append(f"{name} was never seen")
        left = [path for path in paths_below(self.folder / "tmp") if path.is_file()]
        # Workers of Spark remove the folders of an application when they hear of its end.
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            folders = self._folders_of_lookups()
            lines = {name: proxy.connections for name, proxy in proxies.items() if proxy.connections}
            if not folders and not lines:
                break
            time.sleep(0.5)
        if left or folders:
            self.faults.append(f"files are left: {[str(path) for path in (*left, *folders)][:10]}")
        if lines:
            self.faults.append(f"connections are left: {lines}")

    def _folders_of_lookups(self) -> list[Path]:
        return [path for path in paths_below(self.folder / "local") if path.name == "lookup_hints"]

    def _check_input(self, sink: Sink) -> None:
        checkpoint = self.folder / "checkpoint"
        last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
        seconds = int((checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[-1])
        if sink.rows != seconds * RATE:
            self.faults.append(f"{seconds * RATE} rows went in, and {sink.rows} came out")

    def _check_letters_and_counts(self, sink: Sink) -> None:
        letters = letters_in(self.folder / "letters")
        sink.check_letters(letters)
        of_batch: dict[int, dict[int, int]] = defaultdict(dict)
        for (batch, person), number in letters.items():
            of_batch[batch][person] = number
        told = (json.loads(line) for line in (self.folder / "counts.jsonl").read_text("utf-8").splitlines())
        self.counted = 0
        for batch, counts in told:
            if batch in sink.sizes:
                sink.check_counts(batch, counts, of_batch[batch])
                self.counted += 1
        self.letters = letters.total()

    def _print_summary(self, sink: Sink, chaos: Chaos) -> None:
        self.faults += sink.faults[:20]
        seconds = time.monotonic() - self.began
        print(f"\nsoaked for {seconds:.0f} s with seed {self.seed}")
        for what, number in (
            ("rows, each once", sink.rows),
            ("micro-batches", sink.batches + 1),
            ("of these with checked counts", getattr(self, "counted", 0)),
            ("restarts of the stream", int(self._status().get("restarts", 0))),
            ("ids that failed in a batch", len(sink.failed)),
            ("dead letters", getattr(self, "letters", 0)),
            *((f"misses of {name}", number) for name, number in sorted(sink.misses.items())),
            *((f"versions of {name}", versions.latest + 1) for name, versions in sink.sources.items()),
            *sorted(chaos.done.items()),
        ):
            print(f"{what:34} {number:9,}")
        print()
        print(*table_of(self.gauges, self.warm), sep="\n")


def _count_threads(process: psutil.Process) -> int:
    """The threads of a process, but those of ``BLOCK_MANAGERS``."""
    names = []
    for path in Path(f"/proc/{process.pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            names.append(path.read_text())
    return sum(not name.startswith(BLOCK_MANAGERS) for name in names)


def _count_lines(worker: psutil.Process) -> Counter[int]:
    """The connections of a process, by the port at their other end."""
    with contextlib.suppress(psutil.Error):
        return Counter(line.raddr.port for line in worker.net_connections() if line.raddr)
    return Counter()


def soak(seconds: float, seed: int) -> list[str]:
    """What does not hold of a stream that runs for ``seconds`` under the faults of ``seed``."""
    with tempfile.TemporaryDirectory(prefix="lookup-hints-soak-", ignore_cleanup_errors=True) as folder:
        run = Soak(Path(folder), seconds, seed)
        run.run()
    return run.faults


def main() -> None:
    """Soak, and end with 1 if something does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left of it
    print(f"seed {given.seed}", flush=True)
    faults = soak(given.seconds, given.seed)
    for fault in faults:
        print(f"\nWRONG: {fault}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
