#!/bin/bash
# Trains the model: waits for the job and for the other nodes, runs it, and keeps its checkpoints.
nodes=@{nodes}
ranks_per_node=@{ranks_per_node}
master_port=@{master_port}
grace_s=@{grace_s}
image=@{image}
checkpoints=@{checkpoints}
is_spot=@{is_spot}
shares_files=@{shares_files}
options=(@{options})
arguments=(@{arguments})

fetch_models() {
@{fetch_models}
}
list_peers() {
@{list_peers}
}
save_checkpoints() {
@{save_checkpoints}
}
notice() {
@{notice}
}
mount_files() {
@{mount_files}
}
fill_files() {
@{fill_files}
}
# Shared checkpoints are kept by the first node alone.
keep_checkpoints() {
  if [ "$shares_files" = no ] || [ "$rank" = 0 ]; then
    save_checkpoints
  fi
}

until [ -f /models/train.py ]; do
  fetch_models || true
  [ -f /models/train.py ] || sleep 30
done

@{rendezvous}

# The first node brings data and older checkpoints into the file system; the others wait for it.
if [ "$shares_files" = yes ]; then
  mkdir -p /data
  until mountpoint -q /data; do
    mount_files || true
    mountpoint -q /data || sleep 30
  done
  if [ "$rank" = 0 ] && [ ! -f /data/.filled ]; then
    until fill_files; do sleep 60; done
    [ ! -d /models/checkpoints ] || cp -rn /models/checkpoints /data/
    touch /data/.filled
  fi
  until [ -f /data/.filled ]; do sleep 15; done
fi

mkdir -p "$checkpoints"
(while sleep 60; do keep_checkpoints; done) &
# The machine is taken back soon: the job saves, its checkpoint is kept, and others start again.
if [ "$is_spot" = yes ]; then
  (
    until notice; do sleep 5; done
    docker stop train
    keep_checkpoints
  ) &
fi
docker run --rm --name train --gpus all --network=host --ipc=host --ulimit memlock=-1 \
  --stop-timeout "$grace_s" --cap-add=IPC_LOCK "${options[@]}" -v /models:/models "$image" \
  torchrun --nnodes="$nodes" --nproc-per-node="$ranks_per_node" --node-rank="$rank" \
  --master-addr="$leader" --master-port="$master_port" /models/train.py "${arguments[@]}"
status=$?
keep_checkpoints
exit $status
