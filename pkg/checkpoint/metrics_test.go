package checkpoint

import "encoding/json"

// metrics is the record of a claim with options for metrics.
func metrics() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000004")
	r.Results[0].Extensions = Extensions{"metrics": json.RawMessage(`{"source":"GPM","sets":["Basic","Pipelines"],"interval":2000000000,` +
		`"labels":{"stage":"test","team":"a"},"perProcess":true,"exposeInContainer":true}`)}
	return r
}
