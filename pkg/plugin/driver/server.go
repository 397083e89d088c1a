package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/prism-gpu/prism/pkg/config"
)

// Server serves a Handler to the kubelet.
type Server struct {
	Handler *Handler
	Config  *config.Plugin
	// Client is the client that reads claims; nothing else may throttle it.
	Client kubernetes.Interface
	// Calls counts the calls in flight; nil: a separate counter.
	Calls *Calls
	// OnRegistered is called whenever the kubelet has registered the plugin, and from then on sends its calls. It may be nil.
	OnRegistered func()

	registered atomic.Bool
}

// graceTime is the time for calls in flight to finish when the process exits. A call that is cut off fails its pod for more than a minute,
// until the kubelet tries again; the chart gives the pod a little more time than this.
const graceTime = 8 * time.Second

// sendTime is the time for an answer to be sent: the library also cuts off data that is not written to the socket yet, and does not report
// when it is.
const sendTime = 100 * time.Millisecond

// Run opens the sockets and serves until the context ends. It returns when the calls in flight are answered, or cut off after graceTime.
func (s *Server) Run(ctx context.Context) error {
	cfg := s.Config
	if s.Calls == nil {
		s.Calls = &Calls{}
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(cfg.DriverName),
		kubeletplugin.KubeClient(s.Client),
		kubeletplugin.NodeName(cfg.NodeName),
		kubeletplugin.RegistrarDirectoryPath(cfg.Paths.KubeletRegistrar),
		kubeletplugin.PluginDataDirectoryPath(cfg.PluginDir()),
		kubeletplugin.RollingUpdate(types.UID(cfg.PodUID)),
		// Prism's own locks are per claim and per GPU: claims for different GPUs do not wait for each other.
		kubeletplugin.Serialize(false),
		kubeletplugin.HealthService(s.Handler.options.Health != nil),
		kubeletplugin.GRPCInterceptor(s.watchRegistration),
		kubeletplugin.GRPCInterceptor(s.Calls.count),
	}
	if cfg.DeviceMetadata {
		options = append(options, MetadataOf(cfg).options()...)
	}
	helper, err := kubeletplugin.Start(context.WithoutCancel(ctx), s.Handler, options...)
	if err != nil {
		return fmt.Errorf("serving the kubelet: %w", err)
	}
	<-ctx.Done()
	s.registered.Store(false)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	s.Calls.wait(grace)
	select {
	case <-time.After(sendTime):
	case <-grace.Done():
	}
	helper.Stop()
	return nil
}

// watchRegistration learns from the kubelet's own call whether it accepted the plugin.
func (s *Server) watchRegistration(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if status, ok := req.(*registerapi.RegistrationStatus); ok {
		s.registered.Store(status.PluginRegistered)
		if status.PluginRegistered && s.OnRegistered != nil {
			s.OnRegistered()
		}
	}
	return handler(ctx, req)
}

// Ready returns nil once the kubelet sends its calls here.
func (s *Server) Ready() error {
	if !s.registered.Load() {
		return errors.New("the kubelet has not registered this plugin yet")
	}
	return nil
}
