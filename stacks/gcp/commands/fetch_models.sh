#!/bin/sh
# Copies what lies in the stack's bucket to /models, but no checkpoints.
gcloud storage rsync -r --exclude='^checkpoints/iter_.*' gs://@{bucket}/ /models/
