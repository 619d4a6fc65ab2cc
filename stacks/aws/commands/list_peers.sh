#!/bin/sh
# Prints the addresses of the running nodes of the pool, sorted.
aws --region @{region} ec2 describe-instances --output text \
  --filters Name=tag:tonnage-stack,Values=@{stack} Name=tag:tonnage-pool,Values=@{pool} \
  Name=instance-state-name,Values=running \
  --query 'Reservations[].Instances[].PrivateIpAddress' | tr '\t' '\n' | sort
