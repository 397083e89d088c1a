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

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// nodeTimeout is the timeout of a node. After that the node counts as silent: a hanging node delays a list by no more.
	nodeTimeout = 2 * time.Second
	// headerTimeout is the timeout of a node to connect, and to start its answer; the content may take longer.
	headerTimeout = 5 * time.Second
	// listTime is the maximum duration of a list: it then ends with the reports so far, and another list returns the rest.
	listTime = 10 * time.Second
	// quietTime is the time during which a silent node is not asked again, by any request.
	quietTime = 15 * time.Second
	// asked is the maximum number of nodes that all requests together ask at once; namespaceAsked limits the requests about one namespace,
	// and systemAsked is reserved in addition for the controllers of the cluster.
	asked, namespaceAsked, systemAsked = 256, 128, 32
	// maxAnswer limits the bytes that are read of a node's answer, maxReports the listed reports of a node, on all pages together.
	maxAnswer  = 8 << 20
	maxReports = 20000
	// firstItems, firstBytes and firstCost limit the early request to a node; aheadCost limits all nodes together.
	firstItems = 64
	firstBytes = 32 << 10
	firstCost  = 64 << 10
	aheadCost  = namespaceAsked * firstCost
	// maxItems and maxCost limit a list; function cost defines the cost of a report.
	maxItems = 20000
	maxCost  = 12 << 20
	// maxRest is the number of bytes that are read after a list until the end of the answer: only then the connection is reused.
	maxRest = 512
	// maxError is the number of bytes that are read of an error.
	maxError = 4 << 10
	// idleTimeout is the time that an idle connection to a node is kept.
	idleTimeout = time.Minute
)

// Endpoint is the address of a node's plugin.
type Endpoint struct {
	Node string
	// Address is "host:port"; empty: the plugin is not running.
	Address string
}

// Nodes asks the plugins of all nodes. Use NewNodes.
type Nodes struct {
	// endpoints returns all nodes that should answer.
	endpoints  func(ctx context.Context) ([]Endpoint, error)
	namespaces Namespaces
	client     *http.Client
	known      known
	quiet      quiet
	slots      *slots
	limits     limits
	now        func() time.Time
}

// limits are maxAnswer, nodeTimeout, listTime, headerTimeout, commandTimeout and commandTime, except in tests.
type limits struct {
	answer              int64
	node, list, connect time.Duration
	// command is the timeout of a node for a command, commands the maximum duration of a command.
	command, commands time.Duration
}

// NewNodes returns Nodes with the certificate of controllers: a directory with tls.crt, tls.key and ca.crt, the authority of plugins, which
// is read for every connection.
func NewNodes(certificate string, endpoints func(ctx context.Context) ([]Endpoint, error), namespaces Namespaces) *Nodes {
	n := &Nodes{endpoints: endpoints, namespaces: namespaces, known: newKnown(), slots: newSlots(), now: time.Now}
	n.limits = limits{maxAnswer, nodeTimeout, listTime, headerTimeout, commandTimeout, commandTime}
	n.client = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			config, err := clientTLS(certificate)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: n.limits.connect}, Config: config}).DialContext(ctx, network, address)
		},
		// As many as the concurrent requests about one namespace: a plugin refuses too many handshakes.
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
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: config.ReportsServerName}, nil
}

// askNode asks one node for items after a key. A node that did not answer in time is not asked again for quietTime. Until then it is named as
// silent: an item that it may have is not reported as missing.
func askNode[T item](ctx context.Context, n *Nodes, e Endpoint, q *Query, after string, b bounds) (none nodeList[T], err error) {
	if e.Address == "" {
		return none, errors.New("the plugin does not run")
	}
	if n.quiet.has(e, n.now()) {
		return none, fmt.Errorf("node %s: %w", e.Node, errSilent)
	}
	limited, stop := context.WithTimeout(ctx, n.limits.node)
	defer stop()
	list, err := readNode[T](limited, n, e, q, after, b)
	if err == nil || ctx.Err() != nil || limited.Err() == nil { // a node that refuses delays nothing
		return list, err
	}
	if list.read > 0 { // the node is slow, and stores more
		list.more = true
		return list, nil
	}
	n.quiet.put(e, n.now())
	return list, err
}

// readNode reads the answer of one node.
func readNode[T item](ctx context.Context, n *Nodes, e Endpoint, q *Query, after string, b bounds) (list nodeList[T], err error) {
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
	response, err := n.do(ctx, http.MethodGet, e, query, nil, nil, "v1", kindOf[T]().resource)
	if err != nil {
		return list, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusNotFound && kindOf[T]().optional {
		return list, nil
	}
	if response.StatusCode != http.StatusOK {
		return list, readError(response)
	}
	// Items that were received before an error are kept.
	if list, err = readList[T](response.Body, after, b, func(of session.Session) bool { return q.has(of, e.Node) && n.current(ctx, q, of) }); err != nil {
		return list, fmt.Errorf("reading the response of node %s: %w", e.Node, err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxRest) // a shortened list continues
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
	response, err := n.do(ctx, method, endpoints[at], query, nil, header, path...)
	if err != nil {
		if timedOut(err) {
			n.quiet.put(endpoints[at], n.now())
		}
		return nil, fmt.Errorf("the plugin of node %s does not answer: %w", r.Node, errors.Join(errSilent, err))
	}
	return response, nil
}

// timedOut reports whether an error is a timeout, of the context or of the connection.
func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// errSilent is the error of a node that is not asked again.
var errSilent = errors.New("no answer")

func (n *Nodes) do(ctx context.Context, method string, e Endpoint, query url.Values, body io.Reader, header http.Header, path ...string) (*http.Response, error) {
	where := url.URL{Scheme: "https", Host: e.Address, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, where.JoinPath(escaped(path)...).String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	return n.client.Do(request)
}

// escaped escapes the parts of a path, so that none becomes several parts.
func escaped(parts []string) []string {
	all := make([]string, len(parts))
	for i, part := range parts {
		all[i] = url.PathEscape(part)
	}
	return all
}

// readError returns the error in a node's answer.
func readError(response *http.Response) error {
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
