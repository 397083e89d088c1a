#!/bin/sh
# Stands for nsys in tests of performance counters. The nsys next to it, nsys-real, finds no simulated GPU. So this answers with the list in
# /e2e/gpus, refuses GPUs that the list does not contain as supported, and otherwise runs nsys-real without counters.
for argument; do
	shift
	case $argument in
	--gpu-metrics-device=help | --gpu-metrics-devices=help) exec cat /e2e/gpus ;;
	--gpu-metrics-set=help) set -- "$@" "$argument" ;;
	--gpu-metrics-device=* | --gpu-metrics-devices=*)
		for index in $(echo "${argument#*=}" | tr , ' '); do
			sed '/^Some GPUs are not supported/,$d' /e2e/gpus | grep -q "^	$index: " && continue
			echo "Illegal ${argument%%=*} argument: $index." && cat /e2e/gpus
			exit 1
		done
		;;
	--gpu-metrics-*) ;;
	*) set -- "$@" "$argument" ;;
	esac
done
exec "$0-real" "$@"
