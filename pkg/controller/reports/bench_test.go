package reports

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// BenchmarkList_1000Nodes asks the servers of 1,000 nodes with ten reports each, which share this machine's CPUs with the client: with new
// connections for the list, and with reused ones.
func BenchmarkList_1000Nodes(b *testing.B) {
	const nodes, reports = 1000, 10
	a := newAuthority(b)
	certificate, client := a.issue(b, config.ReportsServerName), a.issue(b, "prism-controller")
	var endpoints []Endpoint
	for i := range nodes {
		f := &fakeNode{}
		name := fmt.Sprintf("node-%d", i)
		for j := range reports {
			f.reports = append(f.reports, report.Report{
				ID: fmt.Sprintf("%08x-s%d", i, j), Namespace: "team", Claim: "train", ClaimUID: "uid", Node: name, State: report.Ready, Started: time.Now(),
			})
		}
		endpoints = append(endpoints, Endpoint{Node: name, Address: f.listen(b, certificate)})
	}
	var first, again time.Duration
	for b.Loop() {
		n := NewNodes(client, func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid"))
		for _, took := range []*time.Duration{&first, &again} {
			start := time.Now()
			found, err := list[reportItem](b.Context(), n, Query{Namespace: "team"})
			*took += time.Since(start)
			require.NoError(b, err)
			require.Len(b, found.Items, nodes*reports)
			require.Empty(b, found.Silent)
		}
		n.client.CloseIdleConnections()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms/first")
	b.ReportMetric(float64(again.Milliseconds())/float64(b.N), "ms/again")
}
