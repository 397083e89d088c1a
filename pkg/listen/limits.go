package listen

import "time"

// Limits limit the concurrent use by clients.
type Limits struct {
	// Total applies to all clients, PerClient to the clients with one address.
	Total, PerClient int
}

// Bounds of open connections.
var (
	// Pages applies to ports with metrics and probes: Prometheus uses a connection for each page, the kubelet one for each probe.
	Pages = Limits{Total: 64, PerClient: 8}
	// Admission applies to the port for API servers, some of them behind one proxy. Each uses few connections with many requests.
	Admission = Limits{Total: 128, PerClient: 16}
	// Handshakes applies to connections whose client is not verified yet. Any pod may open them, and they do not count against a controller's.
	Handshakes = Limits{Total: 512, PerClient: 16}
)

// Verified limits the connections of clients with a certificate of a controller; each replica needs a few.
const Verified = 64

// RequestMemory limits the memory for requests at the port for API servers, in bytes. One API server may send as many requests for reports
// as pkg/controller/reports allows to wait (1,088 without a body), and users' requests for reports must not block admission of configuration. By
// default it answers 200 mutating requests at once (--max-mutating-requests-inflight).
var RequestMemory = Limits{Total: 96 << 20, PerClient: 80 << 20}

const (
	// requestBase is the memory of a request without a body, requestCopies the number of copies of a body in memory while it is decoded.
	requestBase, requestCopies = 64 << 10, 4
	// maxBody is the longest body, as in controller-runtime: the old and the new version of an object, 3 MiB each.
	maxBody = 7 << 20
	// bodyTimeout limits the time to send a body. The API server waits 30 s for a webhook at most.
	bodyTimeout = 30 * time.Second
	// maxHeader limits the header of a request, in which the API server sends the groups of a user.
	maxHeader = 64 << 10
)

const (
	headerTimeout = 10 * time.Second
	// writeTimeout is longer than a page takes; net/http/pprof adds the time of a profile to it.
	writeTimeout = time.Minute
	// pageIdle is shorter than Prometheus's usual interval: a new connection is cheap, and an idle one blocks another client.
	pageIdle = 10 * time.Second
	// admissionIdle is the time for which API servers keep connections without a request.
	admissionIdle = 90 * time.Second
)
