#!/usr/bin/env bash
# k8s.io/kubernetes as a dependency, with its staging modules required instead of replaced.
#
# The go.mod of k8s.io/kubernetes requires its staging modules (k8s.io/api, ...) as v0.0.0, a version that does not exist, so modules that import
# it commonly replace each of them. Seen with k8s.io/kubernetes v1.37.2 and Go 1.26:
#   - requiring the staging modules at v0.37.2 is enough, as the highest required version is selected;
#   - with replacements the selected version stays v0.0.0, and with -trimpath it is part of the paths in compiled packages. So a package that was
#     compiled for a module with k8s.io/apimachinery v0.37.2 is compiled again, although source and flags are the same.
# Needs Go and a module proxy; downloads the modules of kube-scheduler.
set -euo pipefail
kubernetes=1.37.2 staging=0.37.2 package=k8s.io/apimachinery/pkg/util/sets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOWORK=off
go version
gomod=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
mapfile -t modules < <(awk '$1 ~ /^k8s.io\// && $2 == "v0.0.0" { print $1 }' "$gomod" | sort -u)
echo "k8s.io/kubernetes v$kubernetes requires ${#modules[@]} modules as v0.0.0"
[ "${#modules[@]}" -gt 20 ]

# module writes a go.mod; its argument selects how it requires the staging modules.
module() {
	mkdir "$1"
	printf 'module example.test/%s\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n' "$1" "$kubernetes" >"$1/go.mod"
	local m
	for m in "${modules[@]}"; do
		case $1 in
		required) echo "require $m v$staging" ;;
		replaced) echo "replace $m => $m v$staging" ;;
		esac
	done >>"$1/go.mod"
}
module neither
module required
module replaced

if (cd neither && go list "$package") >neither.out 2>&1; then
	echo "changed: neither required nor replaced, and it resolves" && exit 1
fi
echo "neither: v0.0.0 does not resolve"
for how in required replaced; do
	deps=$(cd "$how" && go list -deps k8s.io/kubernetes/cmd/kube-scheduler | wc -l)
	version=$(cd "$how" && go list -m -f '{{.Version}}' k8s.io/apimachinery)
	read -r id file < <(cd "$how" && go list -trimpath -export -f '{{.BuildID}} {{.Export}}' "$package")
	path=$(grep -aom1 "k8s.io/apimachinery@v[0-9.]*/pkg/util/sets/set.go" "$file" | head -1)
	echo "$how: kube-scheduler has $deps packages; apimachinery is selected as $version; paths are $path"
	echo "$how $version $path ${id%%/*}" >>seen
done
read -r _ version path first < <(grep '^required' seen)
[ "$version" = "v$staging" ] && [[ $path == *"@v$staging/"* ]]
read -r _ version path second < <(grep '^replaced' seen)
[ "$version" = v0.0.0 ] && [[ $path == *"@v0.0.0/"* ]]
[ "$first" != "$second" ]
echo "as stated: both resolve, and the same package is compiled once for each"
