#!/bin/bash
# Serves the model on one node, or on a group of nodes whose first one leads.
model=@{model}
image=@{image}
nodes_per_replica=@{nodes_per_replica}
options=(@{options})
arguments=(@{arguments})

fetch_models() {
@{fetch_models}
}
list_peers() {
@{list_peers}
}

# Weights come when somebody has uploaded them, so fetching is tried until they are there.
until [ -f "/models/$model/config.json" ]; do
  fetch_models || true
  [ -f "/models/$model/config.json" ] || sleep 30
done
run=(docker run --rm --gpus all --network=host --ipc=host --ulimit memlock=-1
  --cap-add=IPC_LOCK "${options[@]}" -v /models:/models)
if [ "$nodes_per_replica" = 1 ]; then
  exec "${run[@]}" --entrypoint vllm "$image" serve "${arguments[@]}"
fi

# Nodes are cut into groups in the order of their addresses.
while :; do
  peers=$(list_peers) && [ "$(echo "$peers" | wc -w)" -ge "$nodes_per_replica" ] && break
  sleep 15
done
rank=0
for peer in $peers; do
  [ $((rank % nodes_per_replica)) = 0 ] && leader=$peer
  hostname -I | grep -qw "$peer" && break
  rank=$((rank + 1))
done
if hostname -I | grep -qw "$leader"; then
  # The shell of the container expands this: its first argument is the number of nodes.
  # shellcheck disable=SC2016
  lead='ray start --head --port=6379
    until [ "$(ray status | grep -c node_)" -ge "$0" ]; do sleep 5; done
    exec vllm serve "$@" --distributed-executor-backend ray'
  exec "${run[@]}" --entrypoint /bin/bash "$image" -ec "$lead" "$nodes_per_replica" \
    "${arguments[@]}"
fi
exec "${run[@]}" --entrypoint ray "$image" start --block --address="$leader:6379"
