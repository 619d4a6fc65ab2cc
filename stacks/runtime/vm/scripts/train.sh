#!/bin/bash
# Trains the model: waits for the job and for the other nodes, runs it, keeps its checkpoints, and
# gives the node back once the job has said that it is done.
nodes=@{nodes}
ranks_per_node=@{ranks_per_node}
master_port=@{master_port}
grace_s=@{grace_s}
image=@{image}
checkpoints=@{checkpoints}
job=@{job}
last_step=@{last_step}
keep_last=@{keep_last}
span_steps=@{span_steps}
is_spot=@{is_spot}
shares_files=@{shares_files}
options=(@{options})
arguments=(@{arguments})
loading_min=@{loading_min}
started=@{busy_file}-since
tracker=latest_checkpointed_iteration.txt
mark=$checkpoints/done-$job

fetch_models() {
@{fetch_models}
}
list_peers() {
@{list_peers}
}
save_checkpoints() {
@{save_checkpoints}
}
list_checkpoints() {
@{list_checkpoints}
}
fetch_checkpoint() {
@{fetch_checkpoint}
}
drop_checkpoint() {
@{drop_checkpoint}
}
is_done() {
@{is_done}
}
give_back() {
@{give_back}
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
# The job is done: there is nothing left to wait for.
leave() {
  until give_back; do sleep 60; done
  exit 0
}
# While a node loads or stands by, its accelerators rest: the agent is told that it is not idle.
not_idle() {
  touch @{busy_file}
}
# Shared checkpoints are kept by the first node alone. It also deletes from the bucket what is not
# to be kept; on its own disk a node has the newest, and the one that is being written.
keep_checkpoints() {
  if [ "$shares_files" = no ] || [ "$rank" = 0 ]; then
    save_checkpoints || return
    find "$checkpoints" -maxdepth 1 -name 'iter_*' | sort -V | head -n -2 | xargs -r rm -rf
  fi
  if [ "$rank" = 0 ]; then
    list_checkpoints | python3 /opt/tonnage/retention.py "$keep_last" "$span_steps" \
      | while read -r name; do drop_checkpoint "$name"; done
  fi
}
# The step of the newest checkpoint of this node; 0 without one.
saved_step() {
  echo 0 "$(find "$checkpoints" -maxdepth 1 -name 'iter_*' -printf '%f\n' | sort -V | tail -n 1)" \
    | tr -dc 0-9
}
# All nodes go on from the newest checkpoint of which the bucket or this node knows.
fetch_newest() {
  [ -f "/models/checkpoints/$tracker" ] || return 0
  [ "$shares_files" = no ] || cp "/models/checkpoints/$tracker" "$checkpoints/"
  newest=$checkpoints/$(printf 'iter_%07d' "$(cat "$checkpoints/$tracker")")
  fetch_checkpoint "$(basename "$newest")" || [ -n "$(ls -A "$newest")" ]
}

if is_done "$job"; then leave; fi
until fetch_models && [ -f /models/train.py ]; do sleep 30; done

@{rendezvous}

# Loading is no idleness, for as long as it may take; a job that never begins to train is.
[ -f "$started" ] || touch "$started"
(while [ -n "$(find "$started" -mmin "-$loading_min")" ] && not_idle; do sleep 30; done) &
loading=$!
# The first node brings data and older checkpoints into the file system; the others wait for it.
if [ "$shares_files" = yes ]; then
  mkdir -p /data
  until mountpoint -q /data; do
    mount_files || true
    mountpoint -q /data || sleep 30
  done
  mkdir -p "$checkpoints"
  if [ "$rank" = 0 ] && [ ! -f /data/.filled ]; then
    until fill_files && fetch_newest; do sleep 60; done
    touch /data/.filled
  fi
  until [ -f /data/.filled ]; do sleep 15; done
else
  mkdir -p "$checkpoints"
  until fetch_newest; do sleep 30; done
fi
kill $loading

(while sleep 60; do keep_checkpoints; done) &
keeper=$!
# The machine is taken back soon: the job saves, its checkpoint is kept, and others start again.
if [ "$is_spot" = yes ]; then
  (
    until notice; do sleep 5; done
    docker stop train
    keep_checkpoints
  ) &
fi
began=$SECONDS
docker run --rm --name train --gpus all --network=host --ipc=host --ulimit memlock=-1 \
  --stop-timeout "$grace_s" --cap-add=IPC_LOCK -e "TONNAGE_DONE=$mark" \
  "${options[@]}" -v /models:/models "$image" \
  torchrun --nnodes="$nodes" --nproc-per-node="$ranks_per_node" --node-rank="$rank" \
  --master-addr="$leader" --master-port="$master_port" /models/train.py "${arguments[@]}"
status=$?
kill $keeper
# After work the next start may load again.
[ $((SECONDS - began)) -lt 600 ] || touch "$started"
[ $status = 0 ] || { keep_checkpoints; exit $status; }
until keep_checkpoints; do sleep 60; done
# The job says that it is done by its last checkpoint, or by the mark that it was told of. One that
# ends without either was asked to stop, and starts again. The first node tells all others.
if [ "$(saved_step)" -ge "$last_step" ] || [ -f "$mark" ]; then
  if [ "$rank" = 0 ]; then
    touch "$mark"
    until save_checkpoints; do sleep 60; done
  else
    until is_done "$job"; do sleep 15; done
  fi
  leave
fi
exit 1
