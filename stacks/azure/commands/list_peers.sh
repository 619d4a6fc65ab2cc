#!/bin/bash
# Prints the addresses of the running nodes that work together, sorted.
az login --identity --only-show-errors >/dev/null
group=$(curl -sH Metadata:true 'http://169.254.169.254/metadata/instance/compute/resourceGroupName?api-version=2021-02-01&format=text')
scale_sets=(@{peer_sets})
for scale_set in "${scale_sets[@]}"; do
  az vmss nic list -g "$group" --vmss-name "$scale_set" \
    --query '[].ipConfigurations[0].privateIPAddress' -o tsv
done | sort
