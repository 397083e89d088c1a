package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

const (
	// apart is longer than taints that follow others wait to be published together.
	apart = 7 * time.Second
	// storedBudget is the ratio to an update of a ResourceSlice.
	storedBudget = 2
	// aReset is the recovery action that a test GPU asks for.
	aReset model.RecoveryAction = 1
)

// health measures the time from an event of the driver, by which it asks for the reset of a GPU, to the stored taint, one GPU after the
// other. It compares with updates of one of these ResourceSlices by a client, one before each event: both follow the same pause, since programs
// that have been idle are slower.
func (b *bencher) health(ctx context.Context) (err error) {
	paths := layout.Node(b.SimgpuRoot)
	defer func() {
		_, cleared := daemon.Send(paths, daemon.Command{Clear: new(int)})
		err = errors.Join(err, cleared)
	}()
	bare, err := b.newBareUpdates(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.end(ctx)) }()
	var stored, updates Samples
	for index := range b.devices {
		pause(ctx, apart)
		update, err := bare.next(ctx)
		if err != nil {
			return err
		}
		pause(ctx, apart)
		took, err := b.tainted(ctx, func() error {
			_, err := daemon.Send(paths, daemon.Command{Health: &daemon.Health{GPU: index, Action: new(aReset)}})
			return err
		})
		if err != nil {
			return fmt.Errorf("waiting for the taint of GPU %d: %w", index, err)
		}
		stored, updates = append(stored, took), append(updates, update)
	}
	b.report.Add("a GPU becomes unhealthy", "update of a ResourceSlice",
		Row{Name: "from the event of the driver to the stored taint", Samples: stored, Base: updates, Budget: Ratio(storedBudget)})
	return nil
}

// tainted returns the time from an action to the first ResourceSlice that has one more taint.
func (b *bencher) tainted(ctx context.Context, act func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, selection(b.Driver))
	if err != nil {
		return 0, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	taints := map[string]int{}
	for i := range list.Items {
		taints[list.Items[i].Name] = taintsIn(&list.Items[i])
	}
	options := selection(b.Driver)
	options.ResourceVersion = list.ResourceVersion
	changes, err := b.client.ResourceV1().ResourceSlices().Watch(ctx, options)
	if err != nil {
		return 0, fmt.Errorf("watching ResourceSlices: %w", err)
	}
	defer changes.Stop()
	start := time.Now()
	if err := act(); err != nil {
		return 0, err
	}
	for change := range changes.ResultChan() {
		slice, ok := change.Object.(*resourceapi.ResourceSlice)
		if ok && change.Type != watch.Deleted && taintsIn(slice) > taints[slice.Name] {
			return time.Since(start), nil
		}
	}
	return 0, fmt.Errorf("no ResourceSlice of driver %s got another taint: %w", b.Driver, ctx.Err())
}

func taintsIn(slice *resourceapi.ResourceSlice) (n int) {
	for i := range slice.Spec.Devices {
		n += len(slice.Spec.Devices[i].Taints)
	}
	return n
}

// bareUpdates are updates of a ResourceSlice as large as the node's largest one, of a driver without other ResourceSlices.
type bareUpdates struct {
	client resourceclient.ResourceSliceInterface
	copied *resourceapi.ResourceSlice
	round  int64
}

func (b *bencher) newBareUpdates(ctx context.Context) (*bareUpdates, error) {
	u := &bareUpdates{client: b.client.ResourceV1().ResourceSlices()}
	list, err := u.client.List(ctx, selection(b.Driver))
	if err != nil || len(list.Items) == 0 {
		return nil, errors.Join(err, errors.New("no ResourceSlice to copy"))
	}
	largest := slices.MaxFunc(list.Items, func(a, b resourceapi.ResourceSlice) int { return len(a.Spec.Devices) - len(b.Spec.Devices) })
	largest.ObjectMeta, largest.Spec.Driver = metav1.ObjectMeta{GenerateName: "bench-"}, "update.bench"
	if u.copied, err = u.client.Create(ctx, &largest, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating a ResourceSlice: %w", err)
	}
	return u, nil
}

// next times an update.
func (u *bareUpdates) next(ctx context.Context) (took time.Duration, err error) {
	device := &u.copied.Spec.Devices[int(u.round)%len(u.copied.Spec.Devices)]
	device.Attributes = maps.Clone(device.Attributes)
	device.Attributes["round"] = resourceapi.DeviceAttribute{IntValue: new(u.round)}
	u.round++
	took, err = timed(func() error {
		updated, err := u.client.Update(ctx, u.copied, metav1.UpdateOptions{})
		if err == nil {
			u.copied = updated
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("updating a ResourceSlice: %w", err)
	}
	return took, nil
}

// end deletes the ResourceSlice, also after the context has ended.
func (u *bareUpdates) end(ctx context.Context) error {
	return u.client.Delete(context.WithoutCancel(ctx), u.copied.Name, metav1.DeleteOptions{})
}
