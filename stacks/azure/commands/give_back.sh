#!/bin/sh
# Deletes this node from its scale set; a machine that only halts still bills.
metadata=http://169.254.169.254/metadata/instance/compute
numbers_machines=@{numbers_machines}
version='api-version=2021-02-01&format=text'
az login --identity --only-show-errors >/dev/null
node=$(curl -sH Metadata:true "$metadata/name?$version")
group=$(curl -sH Metadata:true "$metadata/resourceGroupName?$version")
# Uniform sets number their machines after the last _, Flexible ones use the whole name.
if [ "$numbers_machines" = yes ]; then node=${node##*_}; fi
az vmss delete-instances -g "$group" -n @{scale_set} --instance-ids "$node" --no-wait
