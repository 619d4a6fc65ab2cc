#!/bin/sh
# Succeeds once the bucket says that the job is done.
gcloud storage ls gs://@{bucket}/checkpoints/done-"$1"
