package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// apiClient is one process's client of the API server. Its requests are fault points if the layout of the node changes.
type apiClient struct {
	configMaps *configMaps
	slices     *resourceSlices
	events     *nodeEvents
	server     server
}

func (m *Machine) newAPIClient(faultPoint FaultPoint) *apiClient {
	return &apiClient{
		configMaps: &configMaps{machine: m, faultPoint: faultPoint}, slices: &resourceSlices{machine: m, faultPoint: faultPoint},
		events: &nodeEvents{}, server: server{m, faultPoint},
	}
}

// api returns the API adapter of a process.
func (c *apiClient) api() plugin.API {
	client := clientset{configMaps: c.configMaps}
	return plugin.API{Claims: client, Background: client, Cluster: c.server, Slices: c.slices, Events: c.events}
}

// nodeConfigs names the ConfigMap from which processes read the node's configuration.
var nodeConfigs = config.NodeConfig{Map: "prism/nodes", Name: "node"}

// clientset is a client for ConfigMaps and ResourceClaims.
type clientset struct {
	kubernetes.Interface
	configMaps *configMaps
}

// CoreV1 serves the ConfigMaps.
func (c clientset) CoreV1() coreclient.CoreV1Interface { return coreAPI{configMaps: c.configMaps} }

// ResourceV1 serves the claims.
func (clientset) ResourceV1() resourceclient.ResourceV1Interface { return resourceAPI{} }

type resourceAPI struct {
	resourceclient.ResourceV1Interface
}

// ResourceClaims serves no claims.
func (resourceAPI) ResourceClaims(string) resourceclient.ResourceClaimInterface { return noClaims{} }

// noClaims serves the writers of claims' statuses, on an API server without these claims.
type noClaims struct {
	resourceclient.ResourceClaimInterface
}

// Get finds no claim.
func (noClaims) Get(ctx context.Context, name string, _ metav1.GetOptions) (*resourceapi.ResourceClaim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
}

type coreAPI struct {
	coreclient.CoreV1Interface
	configMaps *configMaps
}

// ConfigMaps serves the node's configuration.
func (c coreAPI) ConfigMaps(string) coreclient.ConfigMapInterface { return c.configMaps }

// configMaps serves the node's configuration.
type configMaps struct {
	coreclient.ConfigMapInterface
	machine    *Machine
	faultPoint FaultPoint

	mu sync.Mutex
	// read is the last configuration that was read.
	read string
}

// Get reads the node's configuration.
func (c *configMaps) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	var text string
	read := func() (err error) {
		text, err = c.machine.nodeConfig()
		return errors.Join(ctx.Err(), err)
	}
	err := c.machine.apiFaultPoint(c.faultPoint)("api.Config", read)
	if err != nil {
		return nil, fmt.Errorf("the API server does not answer: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = text
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{nodeConfigs.Name: text}}, nil
}

// current reports whether the process has read the current configuration.
func (c *configMaps) current() bool {
	text, err := c.machine.nodeConfig()
	c.mu.Lock()
	defer c.mu.Unlock()
	return err == nil && c.read == text
}

// apiFaultPoint returns the fault point of requests to the API server: none if the layout of the node does not change.
func (m *Machine) apiFaultPoint(faultPoint FaultPoint) FaultPoint {
	if m.layoutChanges {
		return faultPoint
	}
	return func(_ string, effect func() error) error { return effect() }
}

// nodeConfig returns the node's configuration: from the API server or, if the layout does not change, from the machine's layout.
func (m *Machine) nodeConfig() (string, error) {
	if m.layoutChanges {
		c, err := m.cluster()
		return c.Config, err
	}
	var text strings.Builder
	text.WriteString("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus:\n")
	for _, id := range m.gpus {
		if modes, ok := m.parts.layout[id]; ok {
			fmt.Fprintf(&text, "- {select: {uuids: [%s], mustMatch: false}, %s}\n", id, modesText(modes, m.parts.intervals[id]))
		}
	}
	return text.String(), nil
}

// modesText returns the configuration of a GPU with these modes and that interval.
func modesText(modes gpu.Modes, interval gpu.Interval) string {
	var names, settings []string
	if modes.Whole {
		names = append(names, "whole")
	}
	if modes.TimeSlice != nil {
		names = append(names, "timeslice")
		text := fmt.Sprintf("timeSlice: {replicas: %d, shareName: %q", modes.TimeSlice.Count, modes.TimeSlice.ShareName)
		if interval != "" {
			text += ", interval: " + string(interval)
		}
		settings = append(settings, text+"}")
	}
	if modes.MPS != nil {
		names, settings = append(names, "mps"), append(settings, modesOfMPS(modes.MPS))
	}
	if len(modes.MIG) > 0 {
		names = append(names, "mig")
		settings = append(settings, fmt.Sprintf("mig: {profiles: [%s]}", strings.Join(modes.MIG, ", ")))
	}
	return strings.Join(append([]string{fmt.Sprintf("modes: [%s]", strings.Join(names, ", "))}, settings...), ", ")
}

// resourceSlices stores the ResourceSlices that a leading process publishes, if the layout of the node changes.
type resourceSlices struct {
	machine    *Machine
	faultPoint FaultPoint

	mu sync.Mutex
	// node returns the leading process's view of the node; nil while the process does not lead. Unsent is not on the API server yet.
	node   func() *gpu.Node
	unsent *resourceslice.DriverResources
	// sent is the last publication of this process.
	sent *resourceslice.DriverResources
}

// lead makes the process publish.
func (s *resourceSlices) lead(node func() *gpu.Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = node
	return s.machine.updateCluster(func(c *cluster) { c.leads(time.Now()) })
}

// Publish receives the node's ResourceSlices.
func (s *resourceSlices) Publish(resources resourceslice.DriverResources) {
	s.mu.Lock()
	s.unsent = &resources
	s.mu.Unlock()
	s.send()
}

// send sends unsent resources; false if it fails.
func (s *resourceSlices) send() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil || s.unsent == nil {
		return true
	}
	if s.machine.health != nil && s.sent != nil && reflect.DeepEqual(s.sent, s.unsent) {
		s.unsent = nil // as the client of the API server does
		return true
	}
	err := s.faultPoint("api.Publish", func() error {
		return s.machine.updateCluster(func(c *cluster) {
			before := c.Published
			c.publish(*s.unsent, s.node(), time.Now())
			s.machine.health.published(s.machine, c, before)
		})
	})
	if err == nil {
		s.sent, s.unsent = s.unsent, nil
	}
	return err == nil
}

// Run does nothing: layoutController.wait sends resources that could not be sent.
func (*resourceSlices) Run(ctx context.Context, _ func(kube.DroppedFields)) error {
	<-ctx.Done()
	return nil
}

// Stats returns no counts.
func (*resourceSlices) Stats() kube.SlicesStats { return kube.SlicesStats{} }

// nodeEvents collects the Events about intervals as errors, and discards others.
type nodeEvents struct {
	mu           sync.Mutex
	intervalErrs error
}

func (e *nodeEvents) Warn(reason, _, note string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if reason == events.TimeSliceIntervalNotSet {
		e.intervalErrs = errors.Join(e.intervalErrs, errors.New(note))
	}
}

func (*nodeEvents) Normal(_, _, _ string) {}

// take returns the errors since the last call.
func (e *nodeEvents) take() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.intervalErrs
	e.intervalErrs = nil
	return err
}
