#!/bin/bash
# Every node waits for all, and takes its place in the order of their addresses; the first leads,
# and those beyond the number that trains stand by until one of the others is gone or the job done.
rank=0 leader=127.0.0.1
while [ "$nodes" -gt 1 ]; do
  peers=$(list_peers) || peers=
  rank=0 leader=$(echo "$peers" | head -n 1)
  for peer in $peers; do
    hostname -I | grep -qw "$peer" && break
    rank=$((rank + 1))
  done
  if is_done "$job"; then leave; fi
  if [ "$(echo "$peers" | wc -w)" -ge "$nodes" ]; then
    [ $rank -ge "$nodes" ] || break
    not_idle
  fi
  sleep 15
done
