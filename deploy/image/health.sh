#!/bin/sh
# Health of the container: that of the service which its first process runs; other commands are healthy while they run.
# Usage: modyn-health [file with the command line of the first process]
command=$(tr '\0' ' ' <"${1:-/proc/1/cmdline}")
case $command in
*" services run webserver"*) service=webserver ;;
*" services run daemon"*) service=daemon ;;
*" services run code"*) service=code ;;
*" services run mlflow"*) service=mlflow ;;
*) exit 0 ;;
esac
exec modyn-dagster services health "$service"
