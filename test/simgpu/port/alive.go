package port

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Alive asks a GPU whether it responds.
func (s *Session) Alive(ctx context.Context, id gpu.UUID) error {
	d, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	return d.ask("nvmlDeviceGetPerformanceState", func() error {
		_, _, err := s.session.Device(d.handle)
		return err
	})
}
