#!/bin/sh
# Ends this node and lowers the wished number of nodes by one.
gcloud --quiet compute instance-groups managed delete-instances @{group} --zone @{zone} \
  --instances "$(hostname -s)"
