#!/bin/sh
# Copies what lies in the stack's container to /models, but no checkpoints.
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync @{models_url} /models --recursive \
  --exclude-regex='^checkpoints/iter_'
