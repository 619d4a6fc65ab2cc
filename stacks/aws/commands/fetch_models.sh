#!/bin/sh
# Copies what lies in the stack's bucket to /models, but no checkpoints.
aws --region @{region} s3 sync --exclude 'checkpoints/iter_*' s3://@{bucket}/ /models/
