#!/bin/sh
# Copies the checkpoints of this node to the bucket.
gcloud storage rsync -r @{checkpoints} gs://@{bucket}/checkpoints
