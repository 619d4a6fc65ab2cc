#!/bin/sh
# Deletes a checkpoint from the bucket.
aws --region @{region} s3 rm --recursive s3://@{bucket}/checkpoints/"$1"/
