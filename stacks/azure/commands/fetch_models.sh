#!/bin/sh
# Copies what lies in the stack's container to /models.
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync @{models_url} /models --recursive
