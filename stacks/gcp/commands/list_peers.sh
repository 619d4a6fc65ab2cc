#!/bin/sh
# Prints the addresses of the running nodes of the pool, sorted.
gcloud compute instances list --filter=@{peers_filter} \
  --format='value(networkInterfaces[0].networkIP)' | sort
