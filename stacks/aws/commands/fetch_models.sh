#!/bin/sh
# Copies what lies in the stack's bucket to /models.
aws --region @{region} s3 sync s3://@{bucket}/ /models/
