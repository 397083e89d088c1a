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
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// ServerName is what the certificates of plugins are for.
const ServerName = "prism-node"

const (
	// nodeTimeout is how long a node may take to answer. A node that takes longer is silent: one that hangs delays a list by no more.
	nodeTimeout = 2 * time.Second
	// asked is how many nodes are asked at once.
	asked = 128
	// maxAnswer is how many bytes of a node's list are read; maxReports how many reports of a node are shown.
	maxAnswer  = 8 << 20
	maxReports = 20000
	maxError   = 4 << 10
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
	endpoints func(ctx context.Context) ([]Endpoint, error)
	client    *http.Client
	known     known
	// answer is how many bytes of a node's list are read.
	answer int64
}

// NewNodes makes one with the certificate of controllers: a directory with tls.crt, tls.key and ca.crt, the authority of plugins, which is
// read for every connection.
func NewNodes(certificate string, endpoints func(ctx context.Context) ([]Endpoint, error)) *Nodes {
	dialer := &net.Dialer{Timeout: nodeTimeout}
	return &Nodes{endpoints: endpoints, answer: maxAnswer, client: &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			config, err := clientTLS(certificate)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		},
		MaxIdleConnsPerHost: 2, MaxIdleConns: 4 * asked, IdleConnTimeout: idleTimeout, DisableCompression: true,
	}}}
}

func clientTLS(dir string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for plugins: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the authority of plugins: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("reading the authority of plugins: no certificate in %s", filepath.Join(dir, "ca.crt"))
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: ServerName}, nil
}

// Found are the reports of several nodes in order.
type Found struct {
	Reports []report.Report
	// Silent are the nodes that did not answer, Truncated those that have more reports than these; both in order.
	Silent, Truncated []string
}

// List asks all nodes, or one, for the reports of a namespace; of all with "".
func (n *Nodes) List(ctx context.Context, namespace, node string) (Found, error) {
	return n.list(ctx, node, wanted{namespace: namespace})
}

// wanted is what a node is asked for.
type wanted struct {
	// namespace is "" for all.
	namespace string
	// id is that of one report; "": all. Plugins of earlier versions answer with all.
	id string
}

func (w wanted) query() url.Values {
	query := url.Values{"namespace": {w.namespace}}
	if w.id != "" {
		query.Set("id", w.id)
	}
	return query
}

// has says whether a node may answer with the report. What it says of others is left out.
func (w wanted) has(r report.Report, node string) bool {
	return r.Node == node && r.Namespace != "" && (w.namespace == "" || r.Namespace == w.namespace) && (w.id == "" || r.ID == w.id) && validID(r.ID)
}

// list asks all nodes, or one.
func (n *Nodes) list(ctx context.Context, node string, w wanted) (Found, error) {
	endpoints, err := n.endpoints(ctx)
	if err != nil {
		return Found{}, fmt.Errorf("finding the plugins of the nodes: %w", err)
	}
	var found Found
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, asked)
	for _, e := range endpoints {
		if node != "" && e.Node != node {
			continue
		}
		asking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			of, err := n.of(ctx, e, w)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				found.Silent = append(found.Silent, e.Node)
				return
			}
			found.Reports = append(found.Reports, of.reports...)
			if of.truncated {
				found.Truncated = append(found.Truncated, e.Node)
			}
		})
	}
	asking.Wait()
	for _, nodes := range []*[]string{&found.Silent, &found.Truncated} {
		slices.Sort(*nodes)
		*nodes = slices.Compact(*nodes)
	}
	slices.SortFunc(found.Reports, func(a, b report.Report) int {
		if by := a.Started.Compare(b.Started); by != 0 {
			return by
		}
		return compareIDs(a, b)
	})
	return found, ctx.Err()
}

// of asks one node.
func (n *Nodes) of(ctx context.Context, e Endpoint, w wanted) (list nodeList, err error) {
	if e.Address == "" {
		return list, errors.New("the plugin does not run")
	}
	ctx, stop := context.WithTimeout(ctx, nodeTimeout)
	defer stop()
	response, err := n.do(ctx, http.MethodGet, e, w.query(), nil, "v1", "reports")
	if err != nil {
		return list, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return list, said(response)
	}
	if list, err = readList(response.Body, n.answer); err != nil {
		return list, fmt.Errorf("reading what node %s answered: %w", e.Node, err)
	}
	list.reports = slices.DeleteFunc(list.reports, func(r report.Report) bool { return !w.has(r, e.Node) })
	return list, nil
}

// ask sends a request about one report to its node.
func (n *Nodes) ask(ctx context.Context, method string, r report.Report, header http.Header, more ...string) (*http.Response, error) {
	endpoints, err := n.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the plugin of node %s: %w", r.Node, err)
	}
	at := slices.IndexFunc(endpoints, func(e Endpoint) bool { return e.Node == r.Node && e.Address != "" })
	if at < 0 {
		return nil, fmt.Errorf("the plugin of node %s does not run: %w", r.Node, errSilent)
	}
	path := append([]string{"v1", "reports", r.ClaimUID, r.ID}, more...)
	response, err := n.do(ctx, method, endpoints[at], nil, header, path...)
	if err != nil {
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
