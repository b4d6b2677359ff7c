"""A Ray cluster of several nodes on this machine, in a process of its own.

The process prints its address; then, for each line that it reads, it kills a node without warning, adds another, and
prints how many there are. It ends with its input.
"""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

BYTES = 80 * 2**20
SECONDS = 600


class RayNodes:
    """The process, as a test sees it."""

    def __init__(self, errors: Path) -> None:
        name = uuid.uuid4().hex
        self.mark = name.encode()
        """Stands in the environment of every process of this cluster."""
        environment = os.environ | {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "120",
            "RAY_agent_register_timeout_ms": "120000",
            # Ray's workers would only get what busy programs leave, and its proxy five seconds to start.
            "RAY_worker_niceness": "0",
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
            "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120",
            "OMP_NUM_THREADS": "1",
            "ASKWELL_TEST_CLUSTER": name,
        }
        with errors.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self.address = self._line()

    def replace_one(self) -> None:
        """Kills a node without warning, and adds another."""
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        assert self._line() == "2"

    def stop(self) -> None:
        """Ends all nodes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.strip().startswith("["):
                return line.strip()
        return ""


@contextmanager
def ray_nodes(log: Path) -> Generator[RayNodes]:
    """A cluster of two nodes with a CPU each, and a head without; what it says is in the log."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'askwell[cluster]'")
    for _ in range(3):  # on a very busy machine Ray can give up on its own daemons
        nodes = RayNodes(log)
        if nodes.address:
            break
        nodes.stop()
    assert nodes.address, log.read_text()
    try:
        yield nodes
    finally:
        nodes.stop()


def main() -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=BYTES) for _ in range(2)]
    print(cluster.address, flush=True)
    for _line in sys.stdin:
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
        nodes.append(cluster.add_node(num_cpus=1, object_store_memory=BYTES))
        print(len(nodes), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
