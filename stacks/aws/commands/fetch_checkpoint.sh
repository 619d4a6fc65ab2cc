#!/bin/sh
# Copies a checkpoint from the bucket.
aws --region @{region} s3 sync s3://@{bucket}/checkpoints/"$1" @{checkpoints}/"$1"
