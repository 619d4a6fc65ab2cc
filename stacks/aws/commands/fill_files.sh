#!/bin/sh
# Objects of the dataset come by themselves when they are first read.
true
