#!/bin/sh
# Succeeds once the bucket says that the job is done.
aws --region @{region} s3 ls s3://@{bucket}/checkpoints/done-"$1"
