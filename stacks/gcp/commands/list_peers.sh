#!/bin/sh
# Prints the addresses of the running nodes that work together, sorted.
gcloud compute instances list --filter=@{peers_filter} \
  --format='value(networkInterfaces[0].networkIP)' | sort
