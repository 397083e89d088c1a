package listen

import "time"

// Limits bound what clients hold at once.
type Limits struct {
	// Total is of all clients, PerClient of those with one address.
	Total, PerClient int
}

// Bounds of open connections.
var (
	// Pages is for ports with metrics and probes: Prometheus has a connection for each page, the kubelet one for each probe.
	Pages = Limits{Total: 64, PerClient: 8}
	// Admission is for the port that API servers connect to, some of them through one proxy. Each has few connections with many requests.
	Admission = Limits{Total: 128, PerClient: 16}
	// Handshakes is for connections whose client is not verified yet. Any pod may open them, and they take no place of a controller's.
	Handshakes = Limits{Total: 512, PerClient: 16}
)

// Verified bounds the connections of clients with a certificate of a controller; each replica needs a few.
const Verified = 64

// RequestMemory bounds the memory for requests at the port that API servers connect to, in bytes. One API server may have as many requests for
// reports as pkg/reports lets wait (1,088 without a body), and those of users for reports keep no configuration from being admitted. By default it
// answers 200 requests that change something at once (--max-mutating-requests-inflight).
var RequestMemory = Limits{Total: 96 << 20, PerClient: 80 << 20}

const (
	// requestBase is the memory of a request without a body, requestCopies is how often a body is in memory while it is decoded.
	requestBase, requestCopies = 64 << 10, 4
	// maxBody is the longest body, as in controller-runtime: the old and the new version of an object, 3 MiB each.
	maxBody = 7 << 20
	// bodyTimeout is how long a client may take to send a body. The API server waits 30 s for a webhook at most.
	bodyTimeout = 30 * time.Second
	// maxHeader bounds the header of a request, in which the API server sends the groups of a user.
	maxHeader = 64 << 10
)

const (
	headerTimeout = 10 * time.Second
	// writeTimeout is more than a page takes; net/http/pprof adds the time of a profile to it.
	writeTimeout = time.Minute
	// pageIdle is less than Prometheus's usual interval: another connection is cheap, and one that is kept is another client's place.
	pageIdle = 10 * time.Second
	// admissionIdle is how long API servers keep connections without a request.
	admissionIdle = 90 * time.Second
)
