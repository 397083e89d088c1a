package checkpoint

import "encoding/json"

// profiled is the record of a claim whose processes are profiled.
func profiled() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000005")
	r.Results[0].Extensions = Extensions{"profile": json.RawMessage("{}")}
	r.Extensions = Extensions{"profile": json.RawMessage(`{"kind":"ProfilerConfig","apiVersion":"gpu.prism.dev/v1alpha1","enabled":true,` +
		`"match":{"regex":"^python"},"trace":["cuda","nvtx"],"output":{"maxBytes":"4Gi","retention":"72h0m0s"},"later":{"a":1}}`)}
	return r
}
