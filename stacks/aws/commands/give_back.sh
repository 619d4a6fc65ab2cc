#!/bin/sh
# Ends this node and lowers the wished number of nodes by one.
token=$(curl -sX PUT http://169.254.169.254/latest/api/token \
  -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')
instance=$(curl -sH "X-aws-ec2-metadata-token: $token" \
  http://169.254.169.254/latest/meta-data/instance-id)
aws --region @{region} autoscaling terminate-instance-in-auto-scaling-group \
  --instance-id "$instance" --should-decrement-desired-capacity
