#!/bin/sh
# Prints the addresses of the running nodes of the group, sorted.
aws --region @{region} ec2 describe-instances --output text \
  --filters Name=tag:aws:autoscaling:groupName,Values=@{group} \
  Name=instance-state-name,Values=running \
  --query 'Reservations[].Instances[].PrivateIpAddress' | tr '\t' '\n' | sort
