#!/bin/sh
# Copies the checkpoints of this node to the bucket.
aws --region @{region} s3 sync @{checkpoints} s3://@{bucket}/checkpoints
