#!/bin/sh
# Deletes a checkpoint from the container.
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy remove @{models_url}/checkpoints/"$1" --recursive
