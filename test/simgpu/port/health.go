package port

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Health polls one GPU.
func (s *Session) Health(_ context.Context, g *gpu.GPU) gpu.HealthReading {
	return gpu.HealthReading{UUID: g.UUID, Events: true}
}

// WatchHealth waits for the context to end.
func (s *Session) WatchHealth(ctx context.Context, _ func(gpu.HealthEvent)) error {
	<-ctx.Done()
	return nil
}
