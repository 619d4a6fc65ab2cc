#!/bin/sh
# Prints the names of the checkpoints in the bucket.
aws --region @{region} s3 ls s3://@{bucket}/checkpoints/ \
  | awk '$1 == "PRE" && $2 ~ /^iter_/ {sub("/", "", $2); print $2}'
