#!/bin/sh
# Prints the addresses of the running nodes that work together, sorted.
aws --region @{region} ec2 describe-instances --output text \
  --filters Name=tag:tonnage-stack,Values=@{stack} @{peer_filter} \
  Name=instance-state-name,Values=running \
  --query 'Reservations[].Instances[].PrivateIpAddress' | tr '\t' '\n' | sort
