package reports

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
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

// BenchmarkCommand_1000Nodes commands 100 sessions of each of 1,000 nodes, whose servers share this machine's CPUs with the controller: with
// new connections, and with reused ones. It fails if a command takes more than one review, or one request to a node.
func BenchmarkCommand_1000Nodes(b *testing.B) {
	const nodes, each = 1000, 100
	a := newAuthority(b)
	certificate := a.issue(b, config.ReportsServerName)
	reviewed, requests := &reviews{}, &atomic.Int64{}
	var endpoints []Endpoint
	for i := range nodes {
		var accepted session.Accepted
		for j := range each {
			accepted.Names = append(accepted.Names, fmt.Sprintf("%08x-w%d-0123456789abcdef", i, j))
		}
		endpoints = append(endpoints, Endpoint{Node: fmt.Sprintf("node-%d", i), Address: standInWith(b, certificate, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			answer(w, http.StatusOK, accepted)
		})})
	}
	n := withLongLimits(NewNodes(a.issue(b, "prism-controller"), func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid")))
	var first, again time.Duration
	for b.Loop() {
		for _, took := range []*time.Duration{&first, &again} {
			reviewed.asked = 0
			requests.Store(0)
			handler := (&Server{Nodes: n, Users: headers{}, Access: NewDecisions(reviewed, always("uid"))}).Handler()
			start := time.Now()
			_, got := post(handler, "alice", commandsInTeam, commandFor(`"verb":"Stop","selection":{}`))
			*took += time.Since(start)
			require.Equal(b, nodes*each, got.Status.Accepted)
			require.Equal(b, 1, reviewed.asked)
			require.EqualValues(b, nodes, requests.Load())
		}
		n.client.CloseIdleConnections()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms/first-command")
	b.ReportMetric(float64(again.Milliseconds())/float64(b.N), "ms/command-again")
}
