#!/bin/sh
# Copies what lies in the stack's bucket to /models.
gcloud storage rsync -r gs://@{bucket}/ /models/
