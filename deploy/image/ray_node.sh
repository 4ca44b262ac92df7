#!/bin/sh
# Node of a Ray cluster in a container of compose.yaml, or of KubeRay. Usage: modyn-ray-node head|worker [options of `ray start`], or health
# What runs on a node has the node's environment: Ray's token, and the addresses of the databases, which begin here.
set -eu
# Ray finds no address of its own on a network without a way out.
address=${MODYN_RAY_NODE:-$(hostname -i)}
dashboard=${MODYN_RAY_DASHBOARD:-http://ray-head:8265}
role=$1
shift
case $role in
# Runs go to the other nodes, so that the head has its memory for itself.
head) set -- --head --port=6379 --dashboard-host="$address" --dashboard-port=8265 --num-cpus=0 "$@" ;;
worker) set -- --address="${MODYN_RAY_HEAD:-ray-head:6379}" "$@" ;;
health) exec python -P -c '
import sys
from ray.util.state import list_nodes
dashboard, address = sys.argv[1:]
alive = list_nodes(dashboard, filters=[("state", "=", "ALIVE")], raise_on_missing_output=False)
sys.exit(address not in [node.node_ip for node in alive])
' "$dashboard" "$address" ;;
*)
    echo "modyn-ray-node: $role is none of head, worker and health" >&2
    exit 2
    ;;
esac
settings=$(modyn-dagster db env)
eval "$settings"
exec ray start --block --disable-usage-stats --node-ip-address="$address" --object-store-memory=1000000000 "$@"
