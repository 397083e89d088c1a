package browser_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/ui"
	"github.com/prism-gpu/prism/test/browser"
	"github.com/prism-gpu/prism/test/fakes/gpucluster"
)

// chromium is shared by the tests; each opens tabs of its own.
var chromium *browser.Browser

func TestMain(m *testing.M) {
	started, err := browser.Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "the page cannot be tested:", err)
		os.Exit(1)
	}
	chromium = started
	code := m.Run()
	chromium.Stop()
	os.Exit(code)
}

// page is a tab with the page; a failed step ends the test.
type page struct {
	*testing.T
	tab *browser.Tab
}

// open opens a URL in a new tab and waits for the first rows.
func open(t *testing.T, url string, width, height int64) *page {
	t.Helper()
	tab, closeTab, err := chromium.Tab(width, height)
	require.NoError(t, err)
	p := &page{t, tab}
	t.Cleanup(func() {
		assert.Empty(t, tab.Problems(), "the page logged errors")
		closeTab()
	})
	require.NoError(t, tab.Open(url))
	p.wait("document.querySelector('.node')")
	return p
}

func (p *page) wait(expression string) {
	p.Helper()
	require.NoError(p, p.tab.Wait(expression))
}

func (p *page) press(keys string) {
	p.Helper()
	require.NoError(p, p.tab.Press(keys))
}

func (p *page) run(expression string) {
	p.Helper()
	require.NoError(p, p.tab.Run(expression))
}

func (p *page) text(expression string) string {
	p.Helper()
	text, err := p.tab.Text(expression)
	require.NoError(p, err)
	return text
}

func (p *page) number(expression string) int {
	p.Helper()
	n, err := p.tab.Number(expression)
	require.NoError(p, err)
	return n
}

// rows is the number of nodes that are drawn.
func (p *page) rows() int {
	p.Helper()
	return p.number("document.querySelectorAll('.node').length")
}

func about() ui.About {
	return ui.About{Driver: gpucluster.Driver, Source: "production", Time: gpucluster.Now}
}

func cluster(t *testing.T, nodes, waiting int, namespaces ...string) *clusterview.Store {
	t.Helper()
	store := clusterview.NewStore()
	require.NoError(t, gpucluster.Fill(t.Context(), store, nodes, waiting, namespaces...))
	return store
}

// saved writes the page of a cluster as one file and returns its URL.
func saved(t *testing.T, store *clusterview.Store) string {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, ui.Page(&page, store.Cluster(), about(), ui.Extra{Loads: gpucluster.Loads(store.Cluster())}))
	file := filepath.Join(t.TempDir(), "gpus.html")
	require.NoError(t, os.WriteFile(file, page.Bytes(), 0o600))
	return "file://" + file
}

// live serves pictures of a store; change draws another one, end stops the server.
type live struct {
	url    string
	change func()
	end    func()
}

// serve serves the page. Explanations name their pod.
func serve(t *testing.T, store *clusterview.Store) live {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// The context of the test ends before its tabs are closed.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	pictures, urls, done := make(chan *clusterview.Cluster, 1), make(chan string, 1), make(chan error, 1)
	pictures <- store.Cluster()
	from := ui.Source{
		Watch: func(ctx context.Context, draw func(*clusterview.Cluster, []string) error) error {
			for {
				select {
				case c := <-pictures:
					if err := draw(c, nil); err != nil {
						return err
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
		Explain: func(_ context.Context, _ *clusterview.Cluster, pod *clusterview.Pod) (*explain.Explanation, error) {
			return explanation(pod.Pod), nil
		},
	}
	go func() { done <- ui.Serve(ctx, listener, about(), from, func(url string) { urls <- url }) }()
	end := func() { cancel(); assert.NoError(t, <-done); done <- nil }
	t.Cleanup(end)
	return live{url: <-urls, change: func() { pictures <- store.Cluster() }, end: end}
}

func explanation(pod *corev1.Pod) *explain.Explanation {
	return &explain.Explanation{
		Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
		Sentence: fmt.Sprintf("Pod %s/%s, Pending for 14m: no node has a free device for claim %s-gpu", pod.Namespace, pod.Name, pod.Name),
		Requests: []string{"gpu: 1 × mig-3g-40gb.gpu.prism.dev"},
		Groups: []explain.Group{
			{Cause: explain.InUse, Detail: "every placement of 3g.40gb is blocked", Nodes: []string{"gpu-a00", "gpu-a02", "gpu-a04", "gpu-a06"}},
			{Cause: explain.Selector, Detail: `profile == "3g.40gb": the GPUs (NVIDIA L40S) have none`, Nodes: []string{"gpu-a03"}},
		},
		Nearest: &explain.Nearest{Node: "gpu-a00", GPU: "gpu-46b93708", Device: "gpu-46b93708-mig-3g40gb-0", Size: 4, Alike: 3, Holders: []explain.Holder{
			{Namespace: "web", Claim: "rank-x2-gpu", Pods: []string{"rank-x2"}, Owner: "Deployment/rank", Devices: "1g.10gb at 2", Created: gpucluster.Now.Unix()},
		}},
		Changes: []explain.Change{{Text: "move web/rank-x2: kubectl prism defragment " + pod.Name}, {Text: "request 2g.20gb: 17 free now"}},
		Notes:   []string{"A note."},
	}
}
