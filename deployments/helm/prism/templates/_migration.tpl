{{/*
Fails on values of the chart of NVIDIA's device plugin that this chart does not
have, with what replaces each. values.schema.json allows them, because a schema
cannot say so.
*/}}
{{- define "prism.migration" -}}
{{- $found := list -}}
{{- $known := dict -}}
{{- $own := dict -}}
{{- range (.Files.Get "migration.yaml" | fromYaml).values -}}
{{- if .accepted -}}
{{- $_ := set $own (splitList "." .name | first) true -}}
{{- else -}}
{{- $value := $.Values -}}
{{- $set := true -}}
{{- range splitList "." .name -}}
{{- $set = and $set (kindIs "map" $value) -}}
{{- if $set -}}
{{- $set = hasKey $value . -}}
{{- $value = get $value . -}}
{{- end -}}
{{- end -}}
{{- $top := splitList "." .name | first -}}
{{- if $set -}}
{{- $found = append $found (printf "%s: %s" .name .replacement) -}}
{{- $_ := set $known $top true -}}
{{- else if not (hasKey $known $top) -}}
{{- $_ := set $known $top false -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $top, $named := $known -}}
{{- if and (not $named) (not (hasKey $own $top)) (hasKey $.Values $top) -}}
{{- $found = append $found (printf "%s: remove it" $top) -}}
{{- end -}}
{{- end -}}
{{- with $found -}}
{{- fail (printf "values of the chart of NVIDIA's device plugin are not supported:\n  %s" (join "\n  " .)) -}}
{{- end -}}
{{- end -}}
