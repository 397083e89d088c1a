package memlimit

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// owners are the claims whose memory this process has limited containers to. A container that is started again has another cgroup.
type owners struct {
	mu  sync.Mutex
	all map[limited]checkpoint.Claim
}

// limited is what has one limit.
type limited struct {
	gpu    gpu.UUID
	cgroup string
}

// claim makes the claim the owner of a limit, and refuses it where another claim is: the second limit would replace the first one.
func (o *owners) claim(at limited, claim checkpoint.Claim, cgroup func(path string) (string, error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if owner, ok := o.all[at]; ok && owner.UID != claim.UID {
		return fmt.Errorf("two claims limit the GPU memory of one container on GPU %s: %s/%s and %s/%s; use one claim with a request for each share, "+
			"or a container for each claim", at.gpu, owner.Namespace, owner.Name, claim.Namespace, claim.Name)
	}
	for other := range o.all {
		if _, err := cgroup(other.cgroup); errors.Is(err, gpu.ErrNotFound) {
			delete(o.all, other)
		}
	}
	o.all[at] = claim
	return nil
}
