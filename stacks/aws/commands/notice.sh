#!/bin/sh
# Succeeds once AWS has said that it takes this machine back.
token=$(curl -sX PUT http://169.254.169.254/latest/api/token \
  -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')
curl -sfH "X-aws-ec2-metadata-token: $token" \
  http://169.254.169.254/latest/meta-data/spot/instance-action
