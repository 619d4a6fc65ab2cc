#!/bin/sh
# Prints the addresses of the running nodes of the scale set, sorted.
az login --identity --only-show-errors >/dev/null
group=$(curl -sH Metadata:true 'http://169.254.169.254/metadata/instance/compute/resourceGroupName?api-version=2021-02-01&format=text')
az vmss nic list -g "$group" --vmss-name @{scale_set} \
  --query '[].ipConfigurations[0].privateIPAddress' -o tsv | sort
