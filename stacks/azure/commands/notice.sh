#!/bin/sh
# Succeeds once Azure has said that it takes this machine back.
curl -sH Metadata:true \
  'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01' | grep -q Preempt
