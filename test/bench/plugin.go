package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Plugin is a DRA plugin after its registration, as the kubelet uses it: one connection for concurrent calls.
type Plugin struct {
	// Driver is the name it registered with.
	Driver string
	// PID is the process behind its socket, in this pid namespace.
	PID int

	conn   *grpc.ClientConn
	client drapb.DRAPluginClient
}

// Register does the kubelet's work for a new socket of a driver in the directory: it asks for the plugin's name, connects to the endpoint,
// and notifies the plugin that it is registered. It skips sockets without a server.
func Register(ctx context.Context, registrarDir, driver string) (*Plugin, error) {
	sockets, err := filepath.Glob(filepath.Join(registrarDir, driver+"*-reg.sock"))
	if err != nil {
		return nil, fmt.Errorf("finding the registration socket of %s: %w", driver, err)
	}
	failed := []error{fmt.Errorf("finding the registration socket of %s in %s: no plugin answers", driver, registrarDir)}
	for _, socket := range sockets {
		p, err := register(ctx, socket, driver)
		if err == nil {
			return p, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

func register(ctx context.Context, socket, driver string) (*Plugin, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	registration := registerapi.NewRegistrationClient(conn)
	info, err := registration.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking %s for its plugin: %w", socket, err)
	}
	if info.Type != registerapi.DRAPlugin || info.Name != driver || !slices.Contains(info.SupportedVersions, drapb.DRAPluginService) {
		return nil, fmt.Errorf("asking %s for its plugin: %s %q that serves %v, not %s %q that serves %s",
			socket, info.Type, info.Name, info.SupportedVersions, registerapi.DRAPlugin, driver, drapb.DRAPluginService)
	}
	p, err := connect(ctx, info.Endpoint)
	if err != nil {
		return nil, err
	}
	if _, err := registration.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		return nil, errors.Join(fmt.Errorf("notifying %s that it is registered: %w", driver, err), p.Close())
	}
	p.Driver = info.Name
	return p, nil
}

// connect opens the connection that all calls share, and checks that the plugin answers on it.
func connect(ctx context.Context, endpoint string) (*Plugin, error) {
	pid, err := listener(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := dial(endpoint)
	if err != nil {
		return nil, err
	}
	p := &Plugin{PID: pid, conn: conn, client: drapb.NewDRAPluginClient(conn)}
	if err := p.Prepare(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return p, nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", socket, err)
	}
	return conn, nil
}

// Close closes the connection.
func (p *Plugin) Close() error { return p.conn.Close() }

// Prepare prepares the claims in one call, like the kubelet for the claims of a pod.
func (p *Plugin) Prepare(ctx context.Context, claims ...Claim) error {
	answer, err := p.client.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: references(claims)})
	if err != nil {
		return fmt.Errorf("preparing claims: %w", err)
	}
	for _, c := range claims {
		one := answer.Claims[c.UID]
		switch {
		case one == nil:
			return fmt.Errorf("preparing claim %s: the answer does not mention it", c)
		case one.Error != "":
			return fmt.Errorf("preparing claim %s: %s", c, one.Error)
		case len(one.Devices) == 0 || len(one.Devices[0].CdiDeviceIds) == 0:
			return fmt.Errorf("preparing claim %s: the answer names no CDI device", c)
		}
	}
	return nil
}

// Unprepare unprepares the claims in one call.
func (p *Plugin) Unprepare(ctx context.Context, claims ...Claim) error {
	answer, err := p.client.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: references(claims)})
	if err != nil {
		return fmt.Errorf("unpreparing claims: %w", err)
	}
	for _, c := range claims {
		one := answer.Claims[c.UID]
		if one == nil {
			return fmt.Errorf("unpreparing claim %s: the answer does not mention it", c)
		}
		if one.Error != "" {
			return fmt.Errorf("unpreparing claim %s: %s", c, one.Error)
		}
	}
	return nil
}

func references(claims []Claim) []*drapb.Claim {
	refs := make([]*drapb.Claim, 0, len(claims))
	for _, c := range claims {
		refs = append(refs, &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: c.UID})
	}
	return refs
}
