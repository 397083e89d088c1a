package reports

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// ServerName is what the certificates of plugins are for.
const ServerName = "prism-node"

const (
	// nodeTimeout is how long a node may take to answer. A node that takes longer is silent: one that hangs delays a list by no more.
	nodeTimeout = 2 * time.Second
	// headerTimeout is how long a node may take until a connection is made, and until its answer begins, of which the content may take longer.
	headerTimeout = 5 * time.Second
	// listTime is how long a list may take: it ends with what it has, and another one has the rest.
	listTime = 10 * time.Second
	// quietTime is how long a node that was silent is not asked again, whatever the request.
	quietTime = 15 * time.Second
	// asked is how many nodes are asked at once, by all requests together; namespaceAsked of them by those about one namespace, and
	// systemAsked more by the controllers of the cluster alone.
	asked, namespaceAsked, systemAsked = 256, 128, 32
	// maxAnswer is how many bytes of a node's answer are read; maxReports how many reports of a node are listed, on all pages together.
	maxAnswer  = 8 << 20
	maxReports = 20000
	// firstItems, firstBytes and firstCost bound what is asked of a node before it is its turn; aheadCost is that of all nodes together.
	firstItems = 64
	firstBytes = 32 << 10
	firstCost  = 64 << 10
	aheadCost  = namespaceAsked * firstCost
	// maxItems and maxCost bound a list, as cost counts.
	maxItems = 20000
	maxCost  = 12 << 20
	// maxRest is how many bytes are read behind a list, for the end of the answer: a connection is not used again before that.
	maxRest = 512
	// maxError is how many bytes of an error are read.
	maxError = 4 << 10
	// idleTimeout is how long a connection to a node is kept for the next question.
	idleTimeout = time.Minute
)

// Endpoint is where a node's plugin answers.
type Endpoint struct {
	Node string
	// Address is "host:port"; empty: the plugin does not run.
	Address string
}

// Nodes asks the plugins of all nodes. Use NewNodes.
type Nodes struct {
	// endpoints are those of all nodes that should answer.
	endpoints  func(ctx context.Context) ([]Endpoint, error)
	namespaces Namespaces
	client     *http.Client
	known      known
	quiet      quiet
	slots      *slots
	limits     limits
	now        func() time.Time
}

// limits are maxAnswer, nodeTimeout, listTime and headerTimeout, but in tests.
type limits struct {
	answer              int64
	node, list, connect time.Duration
}

// NewNodes makes one with the certificate of controllers: a directory with tls.crt, tls.key and ca.crt, the authority of plugins, which is
// read for every connection.
func NewNodes(certificate string, endpoints func(ctx context.Context) ([]Endpoint, error), namespaces Namespaces) *Nodes {
	n := &Nodes{endpoints: endpoints, namespaces: namespaces, known: newKnown(), slots: newSlots(), limits: limits{maxAnswer, nodeTimeout, listTime, headerTimeout}, now: time.Now}
	n.client = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			config, err := clientTLS(certificate)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: n.limits.connect}, Config: config}).DialContext(ctx, network, address)
		},
		// As many as the requests about one namespace that run at once: a plugin refuses handshakes that are too many.
		ResponseHeaderTimeout: headerTimeout, MaxIdleConnsPerHost: runningCalls, MaxIdleConns: 4 * namespaceAsked, IdleConnTimeout: idleTimeout, DisableCompression: true,
	}}
	return n
}

func clientTLS(dir string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for plugins: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority of plugins: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("reading the certificate authority of plugins: no certificate in %s", filepath.Join(dir, "ca.crt"))
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: ServerName}, nil
}

// of asks one node for reports behind a key. A node that did not answer in time is not asked again for quietTime. It is named as silent until
// then: a report that may be there is not reported as missing.
func (n *Nodes) of(ctx context.Context, e Endpoint, q *Query, after string, b bounds) (nodeList, error) {
	if e.Address == "" {
		return nodeList{}, errors.New("the plugin does not run")
	}
	if n.quiet.has(e, n.now()) {
		return nodeList{}, fmt.Errorf("node %s: %w", e.Node, errSilent)
	}
	limited, stop := context.WithTimeout(ctx, n.limits.node)
	defer stop()
	list, err := n.read(limited, e, q, after, b)
	if err == nil || ctx.Err() != nil || limited.Err() == nil { // one that refuses delays nothing
		return list, err
	}
	if list.read > 0 { // it is slow, and has more
		list.more = true
		return list, nil
	}
	n.quiet.put(e, n.now())
	return list, err
}

// read reads what one node answers.
func (n *Nodes) read(ctx context.Context, e Endpoint, q *Query, after string, b bounds) (list nodeList, err error) {
	query := url.Values{"namespace": {q.Namespace}, "limit": {strconv.Itoa(b.items)}}
	if q.namespaceUID != "" {
		query.Set("namespaceUID", string(q.namespaceUID))
	}
	if q.ID != "" {
		query.Set("id", q.ID)
	}
	if after != "" {
		query.Set("after", after)
	}
	response, err := n.do(ctx, http.MethodGet, e, query, nil, "v1", "reports")
	if err != nil {
		return list, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return list, said(response)
	}
	// What came before an error is kept.
	if list, err = readList(response.Body, after, b, func(r report.Report) bool { return q.has(r, e.Node) && n.current(ctx, q, r) }); err != nil {
		return list, fmt.Errorf("reading the response of node %s: %w", e.Node, err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxRest) // a list that was cut has more behind it
	return list, nil
}

// ask sends a request about one report to its node.
func (n *Nodes) ask(ctx context.Context, method string, r report.Report, query url.Values, header http.Header, more ...string) (*http.Response, error) {
	endpoints, err := n.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the plugin of node %s: %w", r.Node, err)
	}
	at := slices.IndexFunc(endpoints, func(e Endpoint) bool { return e.Node == r.Node && e.Address != "" })
	if at < 0 {
		return nil, fmt.Errorf("the plugin of node %s does not run: %w", r.Node, errSilent)
	}
	if n.quiet.has(endpoints[at], n.now()) {
		return nil, fmt.Errorf("the plugin of node %s did not answer recently; it is queried again after %v: %w", r.Node, quietTime, errSilent)
	}
	path := append([]string{"v1", "reports", r.ClaimUID, r.ID}, more...)
	response, err := n.do(ctx, method, endpoints[at], query, header, path...)
	if err != nil {
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() { // also of the context
			n.quiet.put(endpoints[at], n.now())
		}
		return nil, fmt.Errorf("the plugin of node %s does not answer: %w", r.Node, errors.Join(errSilent, err))
	}
	return response, nil
}

// errSilent is why a node is not asked further.
var errSilent = errors.New("no answer")

func (n *Nodes) do(ctx context.Context, method string, e Endpoint, query url.Values, header http.Header, path ...string) (*http.Response, error) {
	where := url.URL{Scheme: "https", Host: e.Address, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, where.JoinPath(escaped(path)...).String(), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	return n.client.Do(request)
}

// escaped keeps a part of a path from being several.
func escaped(parts []string) []string {
	all := make([]string, len(parts))
	for i, part := range parts {
		all[i] = url.PathEscape(part)
	}
	return all
}

// said is the error in a node's answer.
func said(response *http.Response) error {
	var answer struct {
		Error string `json:"error"`
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil || json.Unmarshal(raw, &answer) != nil || answer.Error == "" {
		return fmt.Errorf("the node answered %s", response.Status)
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s: %w", answer.Error, fs.ErrNotExist)
	}
	return errors.New(answer.Error)
}
