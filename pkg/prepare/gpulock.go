package prepare

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Alone runs something that is no claim's business under the lock of a GPU: no work on a claim that has the GPU is under way then, in
// this process or another.
func (t *Transaction) Alone(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
	uuids := []gpu.UUID{id}
	unlock, foreign, err := t.Locks.GPUs(ctx, uuids)
	if err != nil {
		return err
	}
	defer unlock()
	if foreign {
		t.holders.distrust(uuids) // who takes the lock next would not be told of it again
	}
	return do(ctx)
}
