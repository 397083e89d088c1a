package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/ui"
)

// TestShow_DevicesOfEveryKind_OnMapAndInTop: the map draws a device of each kind with the pod that uses it, top shows the values of the
// simulated GPUs, which it reads from the exporter through the API server, and capacity counts one device less for each that is used.
func TestShow_DevicesOfEveryKind_OnMapAndInTop(t *testing.T) {
	needs(t, consumableCapacity)
	ns := migExclusive(t)
	whole, partition, shared, sliced := 0, firstMIG, sharedGPUs[0], sharedGPUs[1]
	largest := randomClass("7g.80gb")
	ns.hasClasses(t, largest)
	free := ns.capacityOf(gpuClass)
	large := ns.capacityOf(largest)

	ns.create(wholeAt("whole", whole), mpsPod("chat", shared, "20Gi"))
	ns.createMIG("part", "3g.40gb", partition)
	ns.createShare("notebook", sliced)
	for _, pod := range []string{"whole", "chat", "part", "notebook"} {
		ns.ready(pod)
	}
	ns.create(workload{name: "waits", ref: "gpu", request: request{class: gpuClass, count: nodeGPUs - 1}})
	ns.waits("waits")

	ns.drawn(map[int]string{
		whole: "[########] whole", partition: "A 3g.40gb", shared: "[mm......] 61079Mi free mps 20Gi", sliced: "[ttt.....] time-sliced 1/3",
		firstMIG + 1: "[........] 81559Mi free",
	})
	for index, pod := range map[int]string{whole: "whole", partition: "part", shared: "chat", sliced: "notebook"} {
		assert.Equal(t, []string{pod}, ns.mappedTo(index))
	}
	t.Log(ns.must(t, ns.prism("map")...), ns.must(t, ns.prism("map", nodeName, "-o", "wide")...))

	ns.works(use{"whole", 2, 60})
	ns.must(t, ns.simgpu("load", fmt.Sprint(whole), "sm=35", "power=450")...)
	t.Cleanup(func() { ns.must(t, ns.simgpu("load", fmt.Sprint(whole))...) })
	used := (use{gibibytes: 2}).bytes()
	eventually(t, startLimit, func() error { return ns.tops("gpus", "index", whole, 0.35, 0, 450) })
	eventually(t, startLimit, func() error { return ns.tops("pods", "pod", "whole", 0.35, used, 0) })
	for _, of := range []string{"nodes", "gpus", "pods", "namespaces"} {
		t.Log(ns.must(t, ns.prism("top", of)...))
	}

	t.Log(ns.must(t, ns.prism("capacity")...))
	assert.Equal(t, free-4, ns.capacityOf(gpuClass))
	assert.Equal(t, large-1, ns.capacityOf(largest))
	_, text, complaints := ns.prismStatus(ns.prism("explain", "pod", "waits"))
	t.Log(text, complaints)
	assert.Contains(t, text, "InUse")
	assert.Contains(t, text, fmt.Sprintf("request %d instead of %d devices", nodeGPUs-4, nodeGPUs-1))
}

// mappedTo returns the pods that the map shows on a GPU.
func (ns *namespace) mappedTo(index int) (pods []string) {
	ns.t.Helper()
	var drawing struct {
		Items []struct {
			Index *int
			Parts []struct{ Uses []struct{ Pods []string } }
		}
	}
	require.NoError(ns.t, json.Unmarshal([]byte(ns.must(ns.t, ns.prism("map", nodeName, "-o", "json")...)), &drawing))
	for _, g := range drawing.Items {
		if g.Index == nil || *g.Index != index {
			continue
		}
		for _, part := range g.Parts {
			for _, use := range part.Uses {
				pods = append(pods, use.Pods...)
			}
		}
	}
	return pods
}

// wholeAt is a pod with the whole GPU of an index.
func wholeAt(name string, index int) workload {
	return workload{name: name, ref: "gpu", request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf(`device.attributes["gpu.prism.dev"].index == %d`, index)},
	}}
}

// drawn checks that the map contains these texts in the lines of GPUs, by index. A line that starts with spaces continues the one above.
func (ns *namespace) drawn(texts map[int]string) {
	ns.t.Helper()
	lines := map[string]string{}
	index := ""
	drawing := ns.must(ns.t, ns.prism("map", nodeName)...)
	for line := range strings.Lines(drawing) {
		words := strings.Fields(line)
		if len(words) > 0 && !strings.HasPrefix(line, " ") {
			index = words[0]
		}
		lines[index] = strings.TrimSpace(lines[index] + " " + strings.Join(words, " "))
	}
	for index, text := range texts {
		assert.Contains(ns.t, lines[fmt.Sprint(index)], text, "\n%s", drawing)
	}
}

// tops returns an error unless kubectl prism top shows the values of the row in which the key has the value. Values of 0 do not count.
func (ns *namespace) tops(of, key string, value any, utilization, memory, power float64) error {
	out, err := ns.run("", ns.prism("top", of, "-o", "json")...)
	if err != nil {
		return err
	}
	var top struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(out), &top); err != nil {
		return err
	}
	for _, row := range top.Items {
		if fmt.Sprint(row[key]) != fmt.Sprint(value) {
			continue
		}
		for name, want := range map[string]float64{"utilization": utilization, "memoryUsedBytes": memory, "powerWatts": power} {
			if got, _ := row[name].(float64); want != 0 && (got < want-1e-9 || got > want+1e-9) {
				return fmt.Errorf("%s of %s %v is %v, not %g", name, of, value, row[name], want)
			}
		}
		return nil
	}
	return fmt.Errorf("top %s has no row of %v: %s", of, value, out)
}

// TestUI_PageOpened_NodeAndExplanation: a browser with the printed URL gets the page, the node and why a pod waits; requests with another
// Host or without the token do not. A user with the role view alone gets the page too, with a line for each missing right.
func TestUI_PageOpened_NodeAndExplanation(t *testing.T) {
	ns := exclusive(t)
	ns.create(workload{name: "waits", ref: "gpu", request: request{class: gpuClass, count: nodeGPUs + 1}})
	ns.waits("waits")
	b := ns.browser(ns.prism("ui"))
	assert.Contains(t, b.page(t, "/"), "<!doctype html>")
	state := b.state(t)
	require.Len(t, state.Nodes, 1)
	assert.Equal(t, nodeName, state.Nodes[0].Name)
	assert.Len(t, state.Nodes[0].GPUs, nodeGPUs)
	assert.Empty(t, state.Meta.Missing)
	require.NotEmpty(t, state.Pods)
	var explanation explain.Explanation
	require.NoError(t, json.Unmarshal([]byte(b.page(t, "/explain?pod="+ns.name+"/waits")), &explanation))
	require.NotEmpty(t, explanation.Groups)
	assert.Equal(t, explain.Count, explanation.Groups[0].Cause)

	status, _ := b.get(t, "/", func(r *http.Request) { r.Host = "gpus.example.com" })
	assert.Equal(t, http.StatusMisdirectedRequest, status)
	b.Jar = nil
	status, _ = b.get(t, "/events", nil)
	assert.Equal(t, http.StatusForbidden, status)

	user := ns.userWith("viewer", "view", ns)
	as := append([]string{filepath.Join(ns.root, "bin/kubectl-prism")}, user[1:]...)
	as = append(as, "--namespace", ns.name)
	commands := [][]string{{"map"}, {"capacity"}, {"top", "nodes"}, {"top", "pods"}, {"explain", "pod", "waits"}}
	for _, args := range commands {
		status, text, complaints := ns.prismStatus(append(as[:len(as):len(as)], args...))
		t.Log(text, complaints)
		assert.Equal(t, 1, status, "%v", args)
		assert.Contains(t, complaints, "list resourceslices.resource.k8s.io; the chart's ClusterRole *"+viewerRole, "%v", args)
		assert.Contains(t, complaints, "the GPUs are unknown", "%v", args)
	}
	missing := ns.browser(append(as, "ui")).state(t).Meta.Missing
	t.Log(strings.Join(missing, "\n"))
	assert.Contains(t, strings.Join(missing, "\n"), viewerRole)

	// The value viewers.all binds both.
	for kind, where := range map[string]string{"rolebinding": system, "clusterrolebinding": ""} {
		role := strings.TrimSuffix(kind, "binding")
		line := []string{"create", kind, ns.name, "--" + role, "prism" + viewerAllRole, "--serviceaccount", ns.name + ":viewer", "--namespace", where}
		ns.must(t, ns.kubectl(line...)...)
		t.Cleanup(func() { ns.must(t, ns.kubectl("delete", kind, ns.name, "--namespace", where)...) })
	}
	for _, args := range commands {
		status, text, complaints := ns.prismStatus(append(as[:len(as):len(as)], args...))
		t.Log(text, complaints)
		assert.NotEqual(t, 1, status, "%v: %s", args, complaints)
		assert.NotContains(t, complaints, "Missing right", "%v", args)
	}
}

// browser is a browser with a page of kubectl prism ui.
type browser struct {
	http.Client
	url *url.URL
}

// browser starts kubectl prism ui until the end of the test, and opens the URL that it prints.
func (ns *namespace) browser(line []string) *browser {
	ns.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	require.NoError(ns.t, err)
	require.NoError(ns.t, cmd.Start())
	ns.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	printed, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		cancel()
		_ = cmd.Wait()
		require.NoError(ns.t, err, complaints.String())
	}
	ns.t.Log(printed)
	_, address, found := strings.Cut(strings.TrimSpace(printed), "open ")
	require.True(ns.t, found, printed)
	b := &browser{}
	b.url, err = url.Parse(address)
	require.NoError(ns.t, err)
	b.Jar, err = cookiejar.New(nil)
	require.NoError(ns.t, err)
	b.page(ns.t, b.url.RequestURI())
	return b
}

// get returns the answer to a request, which change may change.
func (b *browser) get(t *testing.T, path string, change func(*http.Request)) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url.Scheme+"://"+b.url.Host+path, nil)
	require.NoError(t, err)
	if change != nil {
		change(r)
	}
	answer, err := b.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// page returns a page that the browser may read.
func (b *browser) page(t *testing.T, path string) string {
	t.Helper()
	status, body := b.get(t, path, nil)
	require.Equal(t, http.StatusOK, status, body)
	return body
}

// state returns the first picture of the page's stream.
func (b *browser) state(t *testing.T) (state ui.State) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url.Scheme+"://"+b.url.Host+"/events", nil)
	require.NoError(t, err)
	answer, err := b.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	events := bufio.NewReader(answer.Body)
	for {
		line, err := events.ReadString('\n')
		require.NoError(t, err)
		if text, found := strings.CutPrefix(line, "data: "); found {
			require.NoError(t, json.Unmarshal([]byte(text), &state))
			return state
		}
	}
}
