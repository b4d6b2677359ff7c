"""A Ray cluster of several nodes on this machine, in a process of its own.

Prints its address; then, for each line that it reads, kills a node without warning, adds another, and prints how many
there are. It ends with its input.
"""

import sys

from ray.cluster_utils import Cluster

BYTES = 80 * 2**20


def main() -> None:
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
