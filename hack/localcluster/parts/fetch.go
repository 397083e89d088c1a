package parts

import (
	"context"
	"fmt"
	"strings"
)

// Fetch downloads the modules of the recipes that are not built yet, in their order. A concurrent build need not wait for it: the go
// command downloads a module once, whichever process needs it first.
func Fetch(ctx context.Context, cache Cache, recipes []Recipe) error {
	for _, r := range recipes {
		if cache.Has(cache.Part(r)) {
			continue
		}
		if err := fetch(ctx, cache, r); err != nil {
			return fmt.Errorf("downloading the modules of %s %s: %w", r.Name, r.Version, err)
		}
	}
	return nil
}

// fetch skips a part that another process fetches.
func fetch(ctx context.Context, cache Cache, r Recipe) error {
	unlock, free, err := cache.tryLock("fetch-" + r.Key())
	if err != nil || !free {
		return err
	}
	defer unlock()
	return inModule(ctx, cache, "fetch-"+r.Key(), r, func(m buildModule) error {
		_, err := m.run(ctx, r.listArguments()...)
		return err
	})
}

// fetchAhead runs Fetch concurrently with builds, which report its errors when they encounter them. The returned function ends it.
func fetchAhead(ctx context.Context, cache Cache, recipes []Recipe) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = Fetch(ctx, cache, recipes)
	}()
	return func() {
		cancel()
		<-done
	}
}

// listArguments are the arguments of `go` that find every package of the build, which downloads their modules. Nothing is printed.
func (r Recipe) listArguments() []string {
	args := []string{"list", "-mod=mod", "-deps", "-f", "{{/* none */}}"}
	if len(r.Tags) > 0 {
		args = append(args, "-tags", strings.Join(r.Tags, ","))
	}
	return append(args, r.mains()...)
}
